"""The config of the classification experiment, and what it loads."""

from collections.abc import Collection
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from clip_geometry.config import validate
from clip_geometry.embeddings import Embeddings
from clip_geometry.experiments.kit.base import Model, RunConfig, Seeds, Source, Workspace
from clip_geometry.experiments.kit.stored import check_sources
from clip_geometry.experiments.mickus2024.classify.model import TrainingConfig
from clip_geometry.experiments.mickus2024.classify.problem import Problem, hold_out
from clip_geometry.experiments.mickus2024.classify.states import DEFAULT, known_measure
from clip_geometry.measuring.provenance import context, origin_of
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.tasks import Task, TaskConfig, load_task
from clip_geometry.tasks.items import TaskChoice, items_of
from clip_geometry.tasks.labelled import labelled_task
from clip_geometry.transforms import parse_pipeline, prepare


class ClassifyConfig(RunConfig, TrainingConfig):
    """task: a classification task of texts or words; or data: a data set, or {embeddings: PATH}, whose rows of one
    modality carry labels. model: their encoder, null for stored embeddings.

    pipeline: steps before training, none: rows as the model gives them. Adam moves every coordinate by about lr in an
    update, whatever the scale of the rows, so that unit rows change more than long ones.
    limit: take the first so many items of `data` (a task has its own). seeds: of the classifier's first weights; `seed`
    is that of samples and of what is held out. measure_every: so many updates from one recorded state to the next, the
    first and the last being recorded in any case. sample: measure so many rows, drawn anew in every state, where there
    are more; null: all. held_out: share of the examples whose items are not trained, for whom the classifier is
    measured. measures: of rows, or of rows and labels. batch_size: of the encoder.
    """

    model: Model | None = None
    task: TaskChoice | None = None
    data: Source | None = None
    modality: Literal["image", "text"] = "image"
    pipeline: tuple[str, ...] = ()
    limit: int | None = Field(default=None, ge=3)
    updates: int = Field(default=1000, ge=1)
    measure_every: int = Field(default=1, ge=1)
    seeds: Seeds = (0, 1, 2, 3, 4)
    sample: int | None = Field(default=None, ge=3)
    held_out: float = Field(default=0.0, ge=0, lt=1)
    measures: tuple[str, ...] = Field(default=DEFAULT, min_length=1)
    batch_size: int = Field(default=64, ge=1)

    @field_validator("pipeline")
    @classmethod
    def _known_steps(cls, steps: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(step) for step in parse_pipeline(steps))

    @field_validator("measures")
    @classmethod
    def _known_measures(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            known_measure(name)
        return tuple(dict.fromkeys(names))

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.task is None) == (self.data is None):
            raise InputError("set either 'task' (texts with labels) or 'data' (labelled images or captions)")
        if self.task is not None and self.model is None:
            raise InputError(f"the items of {self.task.name} have to be embedded; set model")
        if self.task is not None and self.limit is not None:
            raise InputError("limit is for 'data'; set task.limit")
        if self.data is not None:
            check_sources(self.model, data=self.data)
        if self.held_out and self.loss == "triplet":
            raise InputError(
                "held_out needs a classifier; the triplet loss trains nothing that unseen items go through"
            )
        return self

    @property
    def training(self) -> TrainingConfig:
        values = self.model_dump(mode="json", include=set(TrainingConfig.model_fields))
        return validate(TrainingConfig, values, "training")

    def options(self, told: Collection[str] = ()) -> dict[str, Any]:
        """What tells this training from the published one, and which rows of `data` it takes, for the `at` of rows.

        told: options that are there at their defaults too.
        """
        names = (*TrainingConfig.model_fields, "measure_every", "sample", "held_out")
        values = {name: getattr(self, name) for name in names}
        defaults = {name: type(self).model_fields[name].default for name in names}
        changed = {name: value for name, value in values.items() if value != defaults[name] or name in told}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}
        return plain if self.data is None else {"rows": self.modality, **plain}


class Loaded(NamedTuple):
    """What is trained, what is held out, and where the embeddings come from. context: what all rows have in common."""

    task: Task
    trained: Problem
    unseen: Problem | None
    context: Row


def load(config: ClassifyConfig, workspace: Workspace, task: Task | None) -> Loaded:
    """task: that of config.task. Raises InputError for data without labels, and for a split that is not possible."""
    if config.task is None or task is None:
        task, rows = _labelled(config, workspace)
    else:
        rows = _embedded(config, config.task, workspace)
        if len(rows) != len(task.items):
            raise InputError(f"{len(rows)} of the {len(task.items)} items of {task.name} could be embedded")
    sets, steps = {rows.modality: rows}, parse_pipeline(config.pipeline)
    prepared = prepare(steps, {rows.modality: rows.vectors}, origin=origin_of(sets))
    vectors = prepared.sets[rows.modality]
    problem = Problem.of(vectors, task.examples, task.labels, len(task.class_names))
    told = context(sets, steps=steps, fitted_on=prepared.fitted.fitted_on, seed=config.seed)
    return Loaded(task, *hold_out(problem, config.held_out, config.seed), told | _source(config))


def _source(config: ClassifyConfig) -> Row:
    """Of a task: the data set called `task` is no more than the way in which its items are embedded."""
    if config.task is None:
        return {}
    options = config.task.model_dump(mode="json", exclude_defaults=True, exclude={"name", "split"})
    return {"dataset": config.task.name, "data_options": options, "split": config.task.split}


def task_of(config: ClassifyConfig) -> Task | None:
    return None if config.task is None else load_task(config.task)


def revisions(config: ClassifyConfig, workspace: Workspace, task: Task | None) -> dict[str, str]:
    """What identifies the files behind the embeddings and the labels."""
    if config.task is None or task is None:
        assert config.data is not None
        return workspace.revisions(config.model, config.data)
    return {**workspace.revisions(config.model, items_of(config.task)), "task_revision": task.revision}


def _embedded(config: ClassifyConfig, task: TaskConfig, workspace: Workspace) -> Embeddings:
    items = items_of(task)
    return workspace.embeddings(config.model, items, limit=None, batch_size=config.batch_size, only="text")["text"]


def _labelled(config: ClassifyConfig, workspace: Workspace) -> tuple[Task, Embeddings]:
    """Images are items one by one, equal captions are one item."""
    assert config.data is not None
    modality = config.modality
    sets = workspace.embeddings(
        config.model, config.data, limit=config.limit, batch_size=config.batch_size, only=modality
    )
    if modality not in sets:
        raise InputError(f"{config.data.name} has no {modality} embeddings but {' and '.join(sets)}; set modality")
    task, first = labelled_task(config.data.name, sets[modality])
    return task, sets[modality].take(first)
