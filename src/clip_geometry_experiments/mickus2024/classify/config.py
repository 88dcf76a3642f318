"""The config of the classification experiment."""

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from clip_geometry.config import Config
from clip_geometry.data.base import DatasetConfig
from clip_geometry.geometry import Measure, measures
from clip_geometry.registry import InputError, did_you_mean, shown
from clip_geometry_experiments.kit.base import Model, RunConfig, Seeds, Source, Steps
from clip_geometry_experiments.kit.stored import StoredConfig, check_sources
from clip_geometry_experiments.mickus2024.classify.objectives import OBJECTIVES, Objective
from clip_geometry_experiments.tasks.items import TaskChoice, items_of

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
