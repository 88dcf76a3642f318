"""What is classified: items with their first embeddings, and examples that are an item or a pair of items."""

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
from clip_geometry_experiments.kit.base import RunFolder
from clip_geometry_experiments.mickus2024.classify.config import ClassifyConfig
from clip_geometry_experiments.tasks import Task
from clip_geometry_experiments.tasks.items import held_out, labeled_task


@dataclass(frozen=True, eq=False)
class ClassificationTask:
    """Items, the examples made of them, and the targets of these.

    Args:
        items: (m, d) float32, the first embeddings of distinct items.
        examples: (n, s) item numbers, s items for each example.
        targets: (n,) class numbers 0..k−1, or (n, k) of 0 and 1 if an example has any number of k labels.
        outputs: k, the outputs of the classifier.
    """

    items: Float[Tensor, "m d"]
    examples: Int[Tensor, "n s"]
    targets: Tensor
    outputs: int

    @classmethod
    def of(
        cls, items: np.ndarray, examples: np.ndarray, labels: np.ndarray, outputs: int | None = None
    ) -> "ClassificationTask":
        """From arrays. labels: (n,) integers from 0, or (n, k) of 0 and 1. outputs: as many as the labels need if None.
        Raises InputError for a single class."""
        rows = as_rows(np.array(items, dtype=np.float32), name="items")  # a copy: these are trained
        one_label = labels.ndim == 1
        needed = int(labels.max()) + 1 if one_label else labels.shape[1]
        targets = torch.from_numpy(labels.astype(np.int64 if one_label else np.float32))
        task = cls(rows, torch.from_numpy(examples.astype(np.int64)), targets, outputs or needed)
        return task.of_several_classes("")

    def of_several_classes(self, name: str) -> "ClassificationTask":
        if len(self.classes.unique()) < 2:
            what = f"the {len(self.examples)} {name} examples".replace("  ", " ")
            raise InputError(f"{what} are of one class; a silhouette needs at least two")
        return self

    @property
    def multi_label(self) -> bool:
        return self.targets.ndim == 2

    @property
    def width(self) -> int:
        """Columns of the classifier's inputs: the embeddings of a pair side by side."""
        return self.examples.shape[1] * self.items.shape[1]

    @cached_property
    def classes(self) -> Int[Tensor, " n"]:
        """Classes for the silhouette, on the CPU: the label, or the distinct vector of labels."""
        targets = self.targets.cpu()
        return torch.unique(targets, dim=0, return_inverse=True)[1] if self.multi_label else targets

    def to(self, device: torch.device) -> "ClassificationTask":
        return ClassificationTask(
            self.items.to(device), self.examples.to(device), self.targets.to(device), self.outputs
        )

    def inputs(self, items: Float[Tensor, "m d"], chosen: Tensor | slice = slice(None)) -> Float[Tensor, "n w"]:
        """The classifier's inputs for these embeddings of the items; chosen: of some examples only."""
        return items[self.examples[chosen]].flatten(1)

    def shuffled(self, seed: int) -> "ClassificationTask":
        """The same items and examples with the targets dealt to them at random."""
        dealt = np.random.default_rng(seed).permutation(len(self.targets))
        return replace(self, targets=self.targets[torch.from_numpy(dealt)])

    def subset(self, examples: np.ndarray) -> "ClassificationTask":
        """Some of the examples, with their items."""
        chosen = self.examples[torch.from_numpy(examples)]
        items, numbers = torch.unique(chosen, return_inverse=True)
        return ClassificationTask(self.items[items], numbers, self.targets[torch.from_numpy(examples)], self.outputs)


def hold_out(task: ClassificationTask, share: float, seed: int) -> tuple[ClassificationTask, ClassificationTask | None]:
    """Splits off about a `share` of the examples, whose items occur in no other example; None for share 0.

    Examples that share an item, directly or through others, stay together. Raises InputError if they are linked so
    closely that none can be held out, and if either subset has a single class.
    """
    if share == 0:
        return task, None
    held = held_out(task.examples.tolist(), share, seed)
    trained, unseen = task.subset(np.flatnonzero(~held)), task.subset(np.flatnonzero(held))
    return trained.of_several_classes("trained"), unseen.of_several_classes("held-out")


class Loaded(NamedTuple):
    """What is trained, what is held out, and where the embeddings come from. context: fields that all records share."""

    task: Task
    trained: ClassificationTask
    unseen: ClassificationTask | None
    context: Row


def load(config: ClassifyConfig, workspace: RunFolder, task: Task | None) -> Loaded:
    """task: that of config.task. Raises InputError for data without labels, and for a split that is not possible."""
    modality = config.modality if task is None else "text"
    sets = workspace.embeddings(config.model, config.items, limit=None, batch_size=config.batch_size, only=modality)
    if modality not in sets:
        raise InputError(f"{config.items.name} has no {modality} embeddings but {' and '.join(sets)}; set modality")
    rows, source = sets[modality], {}
    if config.task is None or task is None:
        task, first = labeled_task(config.items.name, rows)  # images are items, equal captions are one item
        rows = rows.take(first)
    else:
        if len(rows) != len(task.items):
            raise InputError(f"{len(rows)} of the {len(task.items)} items of {task.name} could be embedded")
        # the data set called `task` is only the way in which its items are embedded
        options = config.task.model_dump(mode="json", exclude_defaults=True, exclude={"name", "split"})
        source = {"dataset": task.name, "data_options": options, "split": config.task.split}
    sets, steps = {modality: rows}, parse_pipeline(config.pipeline)
    fitted, transformed = Pipeline(steps).fit_transform({modality: rows.vectors}, origin=origin_of(sets))
    labels, outputs = task.labels, len(task.class_names)
    if config.random_classes is not None:
        outputs = config.random_classes
        labels = np.random.default_rng(config.seed).permutation(np.arange(len(task)) % outputs)
    whole = ClassificationTask.of(transformed[modality], task.examples, labels, outputs)
    split = hold_out(whole, config.held_out, config.seed)
    shared = context(sets, steps=steps, fitted_on=fitted.fitted_on, seed=config.seed)
    return Loaded(task, *split, shared | source)
