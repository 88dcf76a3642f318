"""The config of the classification experiment, and its task: items with embeddings, and examples of some of them."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from clip_geometry.config import Config
from clip_geometry.data.base import DatasetConfig
from clip_geometry.geometry import Measure, measures
from clip_geometry.measuring.views import context, origin_of
from clip_geometry.registry import InputError, did_you_mean, shown
from clip_geometry.results import Row
from clip_geometry.rows.matrix import as_rows
from clip_geometry.steps import parse_pipeline
from clip_geometry.transforms.pipeline import Pipeline
from clip_geometry_experiments.kit.base import Model, RunConfig, RunFolder, Seeds, Source, Steps, data_options
from clip_geometry_experiments.kit.stored import StoredConfig, check_sources
from clip_geometry_experiments.mickus2024.classify.objectives import OBJECTIVES, Objective
from clip_geometry_experiments.tasks import Task
from clip_geometry_experiments.tasks.base import TaskChoice, held_out, items_of, labeled_task

DEFAULT = (
    "silhouette", "silhouette[sqeuclidean]", "silhouette[cosine]", "isoscore", "isoscore[unbiased]",
    "participation_ratio", "average_cosine", "objective_silhouette", "objective_isotropy", "objective_classifier",
)  # fmt: skip


def known_measure(name: str) -> Measure | Objective:
    """Return a measure of rows, a measure of rows and labels, or an objective. Raises InputError for any other name."""
    both = {**measures, **OBJECTIVES}
    usable = {key: measure for key, measure in both.items() if measure.takes in ("rows", "labeled rows")}
    if name not in usable:
        hint = did_you_mean(name, usable, listed_by=measures.listed_by)
        raise InputError(f"{shown(name)} is not a measure of one set of rows{hint}")
    return usable[name]


class TrainingConfig(Config):
    """Config of the model and the optimizer.

    Args:
        lr: Learning rate of Adam, > 0.
        loss: "cross-entropy" (binary cross-entropy per label for multi-hot labels) or "triplet", the triplet loss
            without margin, averaged over all triplets, which needs no classifier.
        classifier: "linear" or "two-layer".
        hidden: Width of the hidden layer of the two-layer classifier.
        bias: Whether the layers of the classifier have a bias.
        init_scale: Factor on the initial weights and biases of the classifier, relative to torch.nn.Linear, > 0.
    """

    lr: float = Field(default=0.001, gt=0)
    loss: Literal["cross-entropy", "triplet"] = "cross-entropy"
    classifier: Literal["linear", "two-layer"] = "linear"
    hidden: int = Field(default=128, ge=1)
    bias: bool = True
    init_scale: float = Field(default=1.0, gt=0)


class ClassifyConfig(RunConfig, TrainingConfig):
    """Config of the experiment `classify`.

    Args:
        model: The encoder; null for stored embeddings.
        task: A classification task of texts or words. Set either `task` or `data`.
        data: A data set, or {embeddings: PATH}, whose rows of one modality have labels.
        modality: Modality of `data` whose rows are trained.
        pipeline: Steps applied before training; empty uses the rows as the model returns them. Adam changes every
            coordinate by lr in the first updates and by less later, regardless of the scale of the rows, so unit rows
            change more than long ones.
        random_classes: Number of random classes of equal size that replace the labels of the examples; null keeps the
            labels.
        updates: Number of Adam steps, each on all examples.
        measure_every: Number of updates between recorded states; the first and the last state are always recorded.
        seeds: Seeds of the initial weights of the classifier; `seed` is the seed of the samples and the held-out split.
        sample: Maximum number of rows to measure, sampled again in every state; null measures all.
        held_out: Share of the examples, from 0 to below 1, on which the classifier is measured and whose items are not
            trained.
        shuffled: Whether to train each seed a second time with its labels randomly permuted across examples. The
            correlations with permuted labels are the null values.
        measures: Names of measures of rows, or of rows and labels.
        batch_size: Batch size of the encoder.
    """

    model: Model | None = None
    task: TaskChoice | None = None
    data: Source | None = None
    modality: Literal["image", "text"] = "image"
    pipeline: Steps = ()
    random_classes: int | None = Field(default=None, ge=2)
    updates: int = Field(default=1000, ge=1)
    measure_every: int = Field(default=1, ge=1)
    seeds: Seeds = (0, 1, 2, 3, 4)
    sample: int | None = Field(default=None, ge=3)
    held_out: float = Field(default=0.0, ge=0, lt=1)
    shuffled: bool = True
    measures: tuple[str, ...] = Field(default=DEFAULT, min_length=1)
    batch_size: int = Field(default=64, ge=1)

    @field_validator("measures")
    @classmethod
    def _known_measures(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Check that the measures exist and contain a silhouette and an IsoScore."""
        for name in names:
            known_measure(name)
        if not {"silhouette", "isoscore"} <= {name.partition("[")[0] for name in names}:
            raise InputError("measures needs a silhouette and an isoscore, which are compared")
        return tuple(dict.fromkeys(names))

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        """Check that either a task with a model or a data set is given."""
        if (self.task is None) == (self.data is None):
            raise InputError("set either 'task' (texts with labels) or 'data' (labeled images or captions)")
        if self.task is not None and self.model is None:
            raise InputError(f"the items of {self.task.name} have to be embedded; set model")
        if self.data is not None:
            check_sources(self.model, data=self.data)
        return self

    @property
    def items(self) -> DatasetConfig | StoredConfig:
        """The data to embed: the items of the task, or `data`."""
        if self.task is not None:
            return items_of(self.task)
        assert self.data is not None
        return self.data

    def options(self, named: Collection[str] = ()) -> dict[str, Any]:
        """Return settings for the `at` of records: those that differ from the published training, and the modality of
        `data`.

        Options in `named` are included even at their defaults.
        """
        names = (*TrainingConfig.model_fields, "measure_every", "sample", "held_out", "random_classes")
        values = {name: getattr(self, name) for name in names}
        defaults = {name: type(self).model_fields[name].default for name in names}
        changed = {name: value for name, value in values.items() if value != defaults[name] or name in named}
        return changed if self.data is None else {"rows": self.modality, **changed}


# --- the task


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
