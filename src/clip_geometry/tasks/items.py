"""The items of a task as a data set of texts, which encoders and the store take like any other."""

from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny, model_validator

from clip_geometry.config import digest, validate
from clip_geometry.data.base import Dataset, DatasetConfig, DatasetEntry, Side, datasets
from clip_geometry.registry import InputError
from clip_geometry.tasks.base import TaskConfig, load_task, resolve_task

TaskChoice = Annotated[SerializeAsAny[TaskConfig], BeforeValidator(resolve_task)]


class TaskItemsConfig(DatasetConfig):
    """task: the name of a task or its section, which also has the `split`."""

    name: str = "task"
    task: TaskChoice

    @model_validator(mode="before")
    @classmethod
    def _split_of_the_task(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("task") is None:
            return values
        split = resolve_task(values["task"]).split
        if values.get("split", split) != split:
            raise InputError(f"split={values['split']} beside a task of split {split}; set the split in its section")
        return {**values, "split": split}


def items_of(config: TaskConfig) -> TaskItemsConfig:
    """Return the data set whose text k is item k of the task."""
    task = config.model_dump(mode="json", serialize_as_any=True)
    return validate(TaskItemsConfig, {"task": task}, f"the items of {config.name}")


def load(config: TaskItemsConfig) -> Dataset:
    """Load one text per distinct item, with its label if every item is one example with one label."""
    task = load_task(config.task)
    alone = task.width == 1 and not task.multi_label and len(task) == len(task.items)
    text = Side(
        "text",
        [str(k) for k in range(len(task.items))],
        task.items.__getitem__,
        labels=task.labels if alone else None,
        language=config.language,
    )
    return Dataset(config=config, revision=digest(list(task.items)), text=text, class_names=task.class_names)


datasets.add("task", DatasetEntry(TaskItemsConfig, load, "the distinct sentences or words of a classification task"))
