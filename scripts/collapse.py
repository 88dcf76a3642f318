"""When the collapse alarm fires: ten healthy trainings of a small CLIP, and trainings whose collapse is planted.

python scripts/collapse.py [--trainings healthy temperature] [--seeds 0 1 2] [--out docs/live/collapse.jsonl]

Every tenth step a probe of 512 held-out pairs is measured. The plants begin at step 400 of 1000. temperature: it is
divided by e every 20 steps, towards 0. columns: one output of the image projection, in random order, dies at every
step, until two are left. directions: all singular values of that projection but the largest lose 5% a step. scale: the
temperature is multiplied by e every 20 steps, which is no collapse. Each training appends one line to the file: two to
four minutes on one idle core.
"""

import argparse
import json
from pathlib import Path

import torch

from clip_geometry.config import validate
from clip_geometry.training import GeometryMonitor
from clip_geometry_experiments.kit.clip_training import zero_shot_by_class
from clip_geometry_experiments.run.runner import RunFolder
from clip_geometry_experiments.studies.train_clip import TrainClip, TrainClipConfig
from clip_geometry_experiments.studies.train_clip.training import encode

BEGIN, EVERY = 400, 10
TRAININGS = ("healthy", "temperature", "columns", "directions", "scale")


def planted(training: str, model, seed: int):
    """What happens to the model after each of the steps 0, 1, … from BEGIN on."""
    projection = dict(model.named_parameters())["visual.head.proj.weight"]
    start = float(model.logit_scale.detach())
    order = torch.randperm(len(projection), generator=torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def harm(step: int) -> None:
        if training in ("temperature", "scale"):
            model.logit_scale.fill_(start + (0.05 if training == "temperature" else -0.05) * step)
        elif training == "columns":
            projection[order[: min(step + 1, len(order) - 2)]] = 0  # without any, rows have no direction
        elif training == "directions":
            u, values, v = torch.linalg.svd(projection, full_matrices=False)
            values[1:] *= 0.95
            projection.copy_(u * values @ v)

    return harm


def train(training: str, seed: int, steps: int, folder: Path) -> dict:
    """The record of a training."""
    section = {"name": "collapse", "experiment": "train_clip", "architecture": "byobnet", "class_captions": 0.5}
    section |= {"steps": steps, "batch_size": 64, "seed": seed, "prompts": ["A picture of a {}."]}
    data = {"name": "scenes", "split": "train", "classes": "seen", "size": 4000, "captions_per_image": 5}
    section |= {"data": data, "measured": {"name": "scenes", "split": "test", "size": 512}}
    run = folder / f"{training}-{seed}"
    run.mkdir(parents=True, exist_ok=True)
    experiment = TrainClip(validate(TrainClipConfig, section, "the script"), RunFolder(run, "cpu"))
    pairs = experiment.pairs("measured")
    prompts = experiment.prompts
    trainer = experiment.trainer()
    numbers, accuracy = {}, []
    harm = None

    def embed(trainer):
        image, text, classes = encode(trainer, pairs, prompts)
        accuracy.append(round(zero_shot_by_class(image, classes, pairs.labels, prompts.seen)["seen"], 4))
        return {"image": image, "text": text}

    def record(scalars, step):
        for name, value in scalars.items():
            numbers.setdefault(name.removeprefix("geometry/"), []).append(float(f"{value:.4g}"))

    monitor = GeometryMonitor(record, every=EVERY, embed=embed, alarm=None)
    while True:
        monitor.step(trainer.number, trainer)
        if trainer.number == steps:
            break
        trainer.step()
        if training != "healthy" and trainer.number == BEGIN:
            harm = planted(training, trainer.model, seed)
        if harm is not None:
            harm(trainer.number - BEGIN)
    at = {"steps": steps, "every": EVERY} | ({} if training == "healthy" else {"begin": BEGIN})
    return {"training": training, "seed": seed, **at, "accuracy": accuracy, "numbers": numbers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", nargs="+", choices=TRAININGS, default=TRAININGS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of each training")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("runs/collapse.jsonl"), help="where the records are appended")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for training in options.trainings:
        for seed in options.seeds:
            record = train(training, seed, options.steps, options.out.parent / "collapse")
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            print(f"{training}, seed {seed}: accuracy {record['accuracy'][-1]} at the end", flush=True)


if __name__ == "__main__":
    main()
