"""A distillation so small that it takes a second, for tests."""

import json

from clip_geometry.config import validate
from clip_geometry.results import Results
from clip_geometry_experiments.run.runner import RunFolder, run
from clip_geometry_experiments.studies.distillation import Distillation
from clip_geometry_experiments.studies.distillation.training import DistillationConfig

LANGUAGES = ("en", "de", "fr", "ru")
PROMPTS = {"en": ["A picture of a {}."], "de": ["Bild: {}."], "fr": ["Image : {}."], "ru": ["Изображение: {}."]}
TINY = {
    "name": "tiny",
    "experiment": "distillation",
    "teacher": "scenes-clip/fresh",
    "data": {"name": "scenes", "split": "train", "classes": "seen", "size": 30, "captions_per_image": 2},
    "measured": {"name": "scenes", "split": "test", "size": 25},
    "tested": {"name": "scenes", "split": "test", "seed": 3, "size": 40},
    "languages": list(LANGUAGES),
    "prompts": PROMPTS,
    "student": {"width": 16, "layers": 1, "heads": 2, "hidden": 24},
    "steps": 6,
    "batch_size": 40,
    "lr": 0.005,
    "class_captions": 0.5,
    "measurements": 4,
}


def configured(**changes):
    return validate(DistillationConfig, TINY | changes, "test")


def planned(folder, **changes):
    """The experiment, in a run folder of its own; the stores lie beside it."""
    (folder / "run").mkdir(exist_ok=True)
    return Distillation(configured(**changes), RunFolder(folder / "run", "cpu"))


def ran(folder, **changes):
    """(the report, rows) of a run."""
    config = folder / "tiny.yaml"
    config.write_text(json.dumps(TINY | changes))
    report = run(config, {}, runs=folder / "runs", device="cpu")
    return report, Results(report.parent / "results.jsonl").read()
