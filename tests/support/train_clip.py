"""A training so small that it takes a second, for the tests of train_clip."""

import json

from clip_geometry.config import validate
from clip_geometry.results import Results
from clip_geometry_experiments.run.runner import RunFolder, run
from clip_geometry_experiments.studies.train_clip import TrainClip
from clip_geometry_experiments.studies.train_clip.data import TrainClipConfig

# a ResNet, so that batch norm is among what has to be continued
RESNET = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "layers": [1, 1, 1, 1], "width": 4, "head_width": 32},
    "text_cfg": {"width": 8, "heads": 2, "layers": 1},
}
TINY = {
    "name": "tiny",
    "experiment": "train_clip",
    "architecture": RESNET,
    "data": {"name": "scenes", "split": "train", "classes": "seen", "size": 50, "captions_per_image": 3},
    "measured": {"name": "scenes", "split": "test", "size": 40},
    "steps": 6,
    "batch_size": 16,
    "lr": 0.003,
    "measurements": 4,
    "class_captions": 0.25,
}


def configured(**changes):
    return validate(TrainClipConfig, TINY | changes, "test")


def planned(folder, **changes):
    """The experiment, in a run folder of its own; the pictures lie beside it."""
    (folder / "run").mkdir(exist_ok=True)
    return TrainClip(configured(**changes), RunFolder(folder / "run", "cpu"))


def ran(folder, sweep=None, **changes):
    """(the report, rows) of a run."""
    config = folder / "tiny.yaml"
    config.write_text(json.dumps(TINY | changes | ({"sweep": sweep} if sweep else {})))
    report = run(config, {}, runs=folder / "runs", device="cpu")
    return report, Results(report.parent / "results.jsonl").read()
