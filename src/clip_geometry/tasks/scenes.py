"""Captions of the made-up `scenes` with the shape of their main object: a task that is there without any file."""

import numpy as np
from pydantic import Field

from clip_geometry.data.scenes.captions import caption
from clip_geometry.data.scenes.layout import COLOURS, SHAPES, labels, sample
from clip_geometry.tasks.base import Task, TaskConfig, TaskEntry, distinct, make_task, spread, tasks


class ScenesTaskConfig(TaskConfig):
    """size: captions before equal ones and `limit`. seed: another one is another stream of scenes, as is the other
    split: "train", or "validation", the set's own test split.
    """

    SPLITS = ("train", "validation")
    split: str = "train"
    size: int = Field(default=1000, ge=2)
    seed: int = Field(default=0, ge=0, lt=2**63)


def load(config: ScenesTaskConfig) -> Task:
    """Classes are the eight shapes, in whatever colour."""
    part = "train" if config.split == "train" else "test"
    rows = spread(range(config.size), config.limit)
    shapes = labels(config.seed, part, config.size)[rows] // len(COLOURS)
    texts = [caption(sample(config.seed, part, row), 0) for row in rows]
    items, examples = distinct([[text] for text in texts])
    return make_task(config.name, items, examples, shapes.astype(np.int64), SHAPES)


tasks.add("scenes", TaskEntry(ScenesTaskConfig, load, "captions of scenes and the shape of the main object, made up"))
