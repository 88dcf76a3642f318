"""What is trained on and validated on, whatever the task: texts and targets, and which examples are held out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from clip_geometry.experiments.rudman2024.finetune.config import FinetuneConfig
from clip_geometry.registry import InputError
from clip_geometry.tasks import TaskConfig, load_task
from clip_geometry.tasks.held_out import held_out
from clip_geometry.tasks.targets import Questions, ScoredPairs, target_tasks

Kind = Literal["class", "score", "span"]


@dataclass(frozen=True, eq=False)
class Examples:
    """texts: of each example a sentence, or a pair of them (a question and its passage).

    targets: (n,) int64 class numbers, float64 scores; of spans the first character of the first answer. answers: of
    spans, of each question. split: as the rows name it.
    """

    name: str
    kind: Kind
    texts: tuple[tuple[str, ...], ...]
    targets: np.ndarray
    classes: tuple[str, ...]
    revision: str
    split: str
    answers: tuple[tuple[str, ...], ...] = ()
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def outputs(self) -> int:
        """Of the head: scores of an example, or of a token (begin, end)."""
        return {"class": len(self.classes), "score": 1, "span": 2}[self.kind]

    def take(self, rows: Sequence[int] | np.ndarray, split: str) -> "Examples":
        rows = [int(row) for row in rows]
        answers = tuple(self.answers[row] for row in rows) if self.answers else ()
        texts = tuple(self.texts[row] for row in rows)
        return replace(self, texts=texts, targets=self.targets[rows], answers=answers, split=split)


def load_examples(config: TaskConfig) -> Examples:
    """Of a task with classes, scores or spans. Raises InputError for a task with several labels."""
    if config.name in target_tasks:
        loaded = target_tasks[config.name].load(config)
        return _of_scores(loaded, config) if isinstance(loaded, ScoredPairs) else _of_questions(loaded, config)
    task = load_task(config)
    if task.multi_label:
        raise InputError(f"{config.name} has several labels for an example; a transformer is fine-tuned for one here")
    texts = tuple(tuple(task.items[item] for item in example) for example in task.examples)
    return Examples(
        config.name, "class", texts, task.labels, task.class_names, task.revision, config.split, (), task.dropped
    )


def _of_scores(pairs: ScoredPairs, config: TaskConfig) -> Examples:
    return Examples(
        config.name, "score", pairs.texts, pairs.scores, (), pairs.revision, config.split, (), pairs.dropped
    )


def _of_questions(asked: Questions, config: TaskConfig) -> Examples:
    texts = tuple((each.question, each.passage) for each in asked.questions)
    starts = np.array([each.answers[0].start for each in asked.questions], dtype=np.int64)
    answers = tuple(tuple(answer.text for answer in each.answers) for each in asked.questions)
    return Examples(config.name, "span", texts, starts, (), asked.revision, config.split, answers)


def train_and_validation(config: FinetuneConfig) -> tuple[Examples, Examples]:
    """Raises InputError where the two have different classes, and where a share cannot be held out."""
    train = load_examples(config.task)
    other = config.validation_task()
    if other is None:
        return hold_out(train, config.held_out, config.seed)
    validation = load_examples(other)
    if (validation.kind, validation.classes) != (train.kind, train.classes):
        raise InputError(
            f"{train.name} and {validation.name} have different targets ({', '.join(train.classes) or train.kind}, and "
            f"{', '.join(validation.classes) or validation.kind}); validate on examples of the same task"
        )
    return train, validation


def hold_out(examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """(what is left, about a `share` of the examples), so that no sentence is in both.

    Examples that share a sentence, directly or through others, stay together. Raises InputError where so many hang
    together that none can be held out, and where either part has fewer than two different targets.
    """
    held, smallest = held_out(examples.texts, share, seed)
    if not held.any():
        raise InputError(
            f"held_out = {share:g} of {len(held)} examples of {examples.name}: none can be held out, the fewest that "
            f"share sentences are {smallest}; raise held_out, or set validation"
        )
    name = f"{examples.split}, {share:g} held out"
    parts = examples.take(np.flatnonzero(~held), examples.split), examples.take(np.flatnonzero(held), name)
    for part, what in zip(parts, ("trained", "held-out"), strict=True):
        if part.kind != "span" and len(np.unique(part.targets)) < 2:
            raise InputError(
                f"the {len(part)} {what} examples of {examples.name} have one target; change held_out or seed"
            )
    return parts
