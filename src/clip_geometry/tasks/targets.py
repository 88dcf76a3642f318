"""Tasks whose targets are not classes: scores of pairs, answers in a passage. The registry `tasks` has the others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from clip_geometry.registry import Registry
from clip_geometry.tasks.base import TaskConfig, TaskEntry, resolve_among, tasks


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Pairs of sentences, each with a score, (n,) float64. revision: changes with any of these."""

    name: str
    texts: tuple[tuple[str, str], ...]
    scores: np.ndarray
    revision: str
    dropped: int = 0


class Answer(NamedTuple):
    """The text of an answer, and its first character in the passage."""

    text: str
    start: int


class Question(NamedTuple):
    """A question with its answers in a passage, at least one."""

    question: str
    passage: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions answered by spans of a passage. revision: changes with any of them."""

    name: str
    questions: tuple[Question, ...]
    revision: str


@dataclass(frozen=True)
class TargetEntry:
    """kind: "score" or "span"."""

    config: type[TaskConfig]
    load: Callable[[Any], ScoredPairs | Questions]
    summary: str
    kind: str


target_tasks: Registry[TargetEntry] = Registry("task", "clip-geometry list tasks")


def resolve_any_task(name_or_section: str | Mapping[str, Any] | TaskConfig) -> TaskConfig:
    """Return the config of a task of either registry, from its name or a section with the key `name`."""
    known: Registry[TaskEntry | TargetEntry] = Registry("task", "clip-geometry list tasks")
    for name, entry in {**tasks, **target_tasks}.items():
        known.add(name, entry)
    return resolve_among(known, name_or_section)
