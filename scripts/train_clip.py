"""A small CLIP trained step by step as library calls: modality gap and cone over its first steps.

python scripts/train_clip.py [--steps 40] [--arm clip] [--architecture byobnet] [--out runs/script]
"""

import argparse
from pathlib import Path

from clip_geometry.config import validate
from clip_geometry_experiments.run.runner import RunFolder
from clip_geometry_experiments.studies.train_clip import TrainClip, TrainClipConfig
from clip_geometry_experiments.studies.train_clip.training import ClipCallback, save_weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="number of steps of 64 images")
    parser.add_argument("--arm", default="clip", help="clip, siglip, fixed_temperature, istar, cosreg, classes")
    parser.add_argument("--architecture", default="byobnet", help="byobnet, tiny")
    parser.add_argument("--out", type=Path, default=Path("runs/script"), help="folder of the model")
    options = parser.parse_args()
    settings = {"arm": options.arm, "architecture": options.architecture, "steps": options.steps, "batch_size": 64}
    data = {"name": "scenes", "split": "train", "classes": "seen", "size": 2000}
    measured = {"name": "scenes", "split": "test", "size": 200}
    section = {"name": "train", "experiment": "train_clip", **settings, "data": data, "measured": measured}
    options.out.mkdir(parents=True, exist_ok=True)
    experiment = TrainClip(validate(TrainClipConfig, section, "the command line"), RunFolder(options.out))

    # held-out images and captions are measured in every recorded state
    measured = experiment.pairs("measured")
    names = ("modality_gap", "average_cosine", "isoscore")
    trainer = experiment.trained(ClipCallback(measured, experiment.prompts, names, batch_norm="batch"))
    for place, values in trainer.trajectory.items():
        print(f"{' '.join(place):34} " + " ".join(f"{value:6.3f}" for value in values))
    print(f"local-dir:{save_weights(trainer.model, experiment.model_folder).parent}")


if __name__ == "__main__":
    main()
