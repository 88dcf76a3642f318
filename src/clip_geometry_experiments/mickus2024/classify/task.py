"""The classification task: items with their initial embeddings, and examples, each of one item or a pair of items."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.measuring.views import context, origin_of
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.rows.matrix import as_rows
from clip_geometry.steps import parse_pipeline
from clip_geometry.transforms.pipeline import Pipeline
from clip_geometry_experiments.kit.base import RunFolder, data_options
from clip_geometry_experiments.mickus2024.classify.config import ClassifyConfig
from clip_geometry_experiments.tasks import Task
from clip_geometry_experiments.tasks.items import held_out, labeled_task


@dataclass(frozen=True, eq=False)
class ClassificationTask:
    """Items, the examples made of them, and the targets of the examples.

    Args:
        items: Initial embeddings of distinct items, (m, d), float32.
        examples: Indices of the items of each example, (n, s), with s items per example.
        targets: Class indices 0..k−1, (n,), or 0/1 labels, (n, k), if an example can have any number of k labels.
        outputs: Number of outputs of the classifier, k.
    """

    items: Float[Tensor, "m d"]
    examples: Int[Tensor, "n s"]
    targets: Tensor
    outputs: int

    @classmethod
    def of(
        cls, items: np.ndarray, examples: np.ndarray, labels: np.ndarray, outputs: int | None = None
    ) -> "ClassificationTask":
        """Build a task from arrays.

        Args:
            items: Initial embeddings of the items, (m, d).
            examples: Indices of the items of each example, (n, s).
            labels: Integers from 0, (n,), or 0/1 labels, (n, k).
            outputs: Number of outputs of the classifier; None uses as many as the labels need.

        Raises:
            InputError: If all examples are of one class.
        """
        rows = as_rows(np.array(items, dtype=np.float32), name="items")  # a copy, because the rows are trained
        one_label = labels.ndim == 1
        needed = int(labels.max()) + 1 if one_label else labels.shape[1]
        targets = torch.from_numpy(labels.astype(np.int64 if one_label else np.float32))
        task = cls(rows, torch.from_numpy(examples.astype(np.int64)), targets, outputs or needed)
        return task.of_several_classes("")

    def of_several_classes(self, name: str) -> "ClassificationTask":
        if len(self.classes.unique()) < 2:
            what = f"the {len(self.examples)} {name} examples".replace("  ", " ")
            raise InputError(f"{what} are of one class; expected at least two classes, for a silhouette")
        return self

    @property
    def multi_label(self) -> bool:
        return self.targets.ndim == 2

    @property
    def width(self) -> int:
        """Number of columns of the classifier's inputs; the embeddings of a pair are concatenated."""
        return self.examples.shape[1] * self.items.shape[1]

    @cached_property
    def classes(self) -> Int[Tensor, " n"]:
        """Classes for the silhouette, on the CPU: the labels, or the distinct label vectors."""
        targets = self.targets.cpu()
        return torch.unique(targets, dim=0, return_inverse=True)[1] if self.multi_label else targets

    def to(self, device: torch.device) -> "ClassificationTask":
        return ClassificationTask(
            self.items.to(device), self.examples.to(device), self.targets.to(device), self.outputs
        )

    def inputs(self, items: Float[Tensor, "m d"], chosen: Tensor | slice = slice(None)) -> Float[Tensor, "n w"]:
        """Return the classifier's inputs for these item embeddings; `chosen` selects some of the examples."""
        return items[self.examples[chosen]].flatten(1)

    def shuffled(self, seed: int) -> "ClassificationTask":
        """Return the task with its targets randomly permuted across the examples."""
        order = np.random.default_rng(seed).permutation(len(self.targets))
        return replace(self, targets=self.targets[torch.from_numpy(order)])

    def subset(self, examples: np.ndarray) -> "ClassificationTask":
        """Return the task with some of the examples and their items."""
        chosen = self.examples[torch.from_numpy(examples)]
        items, numbers = torch.unique(chosen, return_inverse=True)
        return ClassificationTask(self.items[items], numbers, self.targets[torch.from_numpy(examples)], self.outputs)


def hold_out(task: ClassificationTask, share: float, seed: int) -> tuple[ClassificationTask, ClassificationTask | None]:
    """Split off about a `share` of the examples whose items occur in no other example; return None for a share of 0.

    Examples that share an item, directly or through other examples, stay together. Raises InputError if the examples
    are linked so closely that none can be held out, or if either subset has a single class.
    """
    if share == 0:
        return task, None
    held = held_out(task.examples.tolist(), share, seed)
    trained, unseen = task.subset(np.flatnonzero(~held)), task.subset(np.flatnonzero(held))
    return trained.of_several_classes("trained"), unseen.of_several_classes("held-out")


class Loaded(NamedTuple):
    """The trained and held-out examples, and `context`, the origin of their embeddings, which all records share."""

    task: Task
    trained: ClassificationTask
    unseen: ClassificationTask | None
    context: Row


def load(config: ClassifyConfig, workspace: RunFolder, task: Task | None) -> Loaded:
    """Embed the items, transform them and split the examples; `task` is the task that `config.task` names, or None.

    Raises InputError if the data have no labels or the split is not possible.
    """
    modality = config.modality if task is None else "text"
    sets = workspace.embeddings(config.model, config.items, limit=None, batch_size=config.batch_size, only=modality)
    if modality not in sets:
        raise InputError(f"{config.items.name} has no {modality} embeddings, but {' and '.join(sets)}; set modality")
    rows = sets[modality]
    source = {}
    if config.task is None or task is None:
        task, first = labeled_task(config.items.name, rows)  # each image is an item; equal captions are one item
        rows = rows.take(first)
    else:
        if len(rows) != len(task.items):
            raise InputError(f"only {len(rows)} of the {len(task.items)} items of {task.name} could be embedded")
        # the data set called `task` serves only to embed the items
        source = {"dataset": task.name, "data_options": data_options(config.task), "split": config.task.split}
    sets = {modality: rows}
    steps = parse_pipeline(config.pipeline)
    fitted, transformed = Pipeline(steps).fit_transform({modality: rows.vectors}, origin=origin_of(sets))
    labels = task.labels
    outputs = len(task.class_names)
    if config.random_classes is not None:
        outputs = config.random_classes
        if outputs > len(task):
            raise InputError(f"random_classes = {outputs}; expected at most one for each of the {len(task)} examples")
        labels = np.random.default_rng(config.seed).permutation(np.arange(len(task)) % outputs)
    whole = ClassificationTask.of(transformed[modality], task.examples, labels, outputs)
    split = hold_out(whole, config.held_out, config.seed)
    shared = context(sets, steps=steps, fitted_on=fitted.fitted_on, seed=config.seed)
    return Loaded(task, *split, shared | source)
