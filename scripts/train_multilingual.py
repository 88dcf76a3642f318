"""Distillation as library calls: a small text tower learns in four languages what a CLIP says in English.

python scripts/train_multilingual.py [--teacher local-dir:shipped/scenes-trained] [--steps 100] [--out runs/script]
"""

import argparse
from pathlib import Path

from clip_geometry.config import validate
from clip_geometry_experiments.run.runner import RunFolder
from clip_geometry_experiments.studies.distillation import Distillation, DistillationConfig
from clip_geometry_experiments.studies.distillation.training import save_student

PROMPTS = {"en": ["A picture of a {}."], "de": ["Bild: {}."], "fr": ["Image : {}."], "ru": ["Изображение: {}."]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--teacher", default="local-dir:shipped/scenes-trained", help="a model with image and text towers"
    )
    parser.add_argument("--steps", type=int, default=100, help="number of steps of 256 texts")
    parser.add_argument("--out", type=Path, default=Path("runs/script"), help="folder of the text tower")
    options = parser.parse_args()
    data = {"name": "scenes", "split": "train", "classes": "seen", "size": 1000, "captions_per_image": 5}
    measured = {"name": "scenes", "split": "test", "size": 200}
    settings = {
        "teacher": options.teacher,
        "data": data,
        "measured": measured,
        "tested": measured,
        "steps": options.steps,
    }
    settings |= {"languages": list(PROMPTS), "prompts": PROMPTS, "class_captions": 0.5, "lr": 2e-3}
    section = {"name": "distillation", "experiment": "distillation", **settings}
    options.out.mkdir(parents=True, exist_ok=True)
    experiment = Distillation(validate(DistillationConfig, section, "the command line"), RunFolder(options.out))

    # held-out captions and images are measured in every recorded state
    trainer = experiment.trained(experiment.callback())
    for place, values in trainer.trajectory.items():
        print(f"{' '.join(place):34} " + " ".join(f"{value:6.3f}" for value in values))
    print(f"mclip:{save_student(trainer.student, experiment.model_folder).parent}")


if __name__ == "__main__":
    main()
