"""Captions of the generated `scenes` with the shape of their main object: a task without any file."""

import numpy as np
from pydantic import Field

from clip_geometry.data.scenes.captions import caption
from clip_geometry.data.scenes.layout import COLOURS, SHAPES, labels, sample
from clip_geometry.tasks.base import Task, TaskConfig, TaskEntry, distinct, make_task, spread, tasks


class ScenesTaskConfig(TaskConfig):
    """A task on generated scenes.

    Attributes:
        size: Captions, before `limit` and before equal ones are joined.
        seed: Of the stream of scenes.
        split: "train", or "validation" for the test split of `scenes`.
    """

    SPLITS = ("train", "validation")
    split: str = "train"
    size: int = Field(default=1000, ge=2)
    seed: int = Field(default=0, ge=0, lt=2**63)


def load(config: ScenesTaskConfig) -> Task:
    """Load captions with one of the eight shapes, in any color."""
    part = "train" if config.split == "train" else "test"
    rows = spread(range(config.size), config.limit)
    shapes = labels(config.seed, part, config.size)[rows] // len(COLOURS)
    texts = [caption(sample(config.seed, part, row), 0) for row in rows]
    items, examples = distinct([[text] for text in texts])
    return make_task(config.name, items, examples, shapes.astype(np.int64), SHAPES)


tasks.add("scenes", TaskEntry(ScenesTaskConfig, load, "captions of scenes and the shape of the main object, made up"))
