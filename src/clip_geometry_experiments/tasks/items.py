"""Conversion between tasks and embeddings: task items as a data set, labeled rows as a task, and held-out examples."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny, model_validator

from clip_geometry.config import digest, validate
from clip_geometry.data.base import Dataset, DatasetConfig, DatasetEntry, Side, datasets
from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import InputError
from clip_geometry_experiments.tasks.base import Task, TaskConfig, distinct, load_task, make_task, resolve_task, tasks


def _of_classes(given: Any) -> TaskConfig:
    """Return the config of a task with class labels; raise InputError for other tasks."""
    config = resolve_task(given)
    if tasks[config.name].kind != "class":
        raise InputError(f"the task {config.name} has no classes; choose another of clip-geometry list tasks")
    return config


TaskChoice = Annotated[SerializeAsAny[TaskConfig], BeforeValidator(_of_classes)]


class TaskItemsConfig(DatasetConfig):
    """Options of the data set of a task's items.

    Attributes:
        task: The name of a task, or its section, which also has the `split`.
    """

    name: str = "task"
    task: TaskChoice

    @model_validator(mode="before")
    @classmethod
    def _split_of_the_task(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Set the split to that of the task, and check that no other was given."""
        if values.get("task") is None:
            return values
        split = resolve_task(values["task"]).split
        if values.get("split", split) != split:
            raise InputError(
                f"split={values['split']}, but its task has split {split}; set the split in the task's section"
            )
        return {**values, "split": split}


def items_of(config: TaskConfig) -> TaskItemsConfig:
    """Return the data set whose text k is item k of the task."""
    task = config.model_dump(mode="json", serialize_as_any=True)
    return validate(TaskItemsConfig, {"task": task}, f"the items of {config.name}")


def load(config: TaskItemsConfig) -> Dataset:
    """Load one text per distinct item. It has a label if every item is exactly one example with one label."""
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


datasets.add("task", DatasetEntry(TaskItemsConfig, load))


def labeled_task(name: str, rows: Embeddings) -> tuple[Task, np.ndarray]:
    """Return a task whose examples are labeled rows, and the row of each item.

    Each image is an item, named by its item_id or its row number. Equal captions are one item, whose row is the first
    of them. The class names are those of the manifest if the labels are indices into them, or else the labels.

    Args:
        name: Name of the task.
        rows: Rows with labels.

    Returns:
        The task, and the row of each item, (items,) int64.

    Raises:
        InputError: If the rows have no labels.
    """
    if rows.labels is None:
        raise InputError(f"the {rows.modality} rows of {name} have no labels; choose a data set with classes")
    values, labels = np.unique(np.asarray(rows.labels), return_inverse=True)
    known = rows.provenance.get("class_names") or ()
    if values.dtype.kind in "iu" and all(value in range(len(known)) for value in values):
        values = [known[value] for value in values]
    names = range(len(rows))
    if rows.modality == "text" and "text" in rows.metadata:
        names = rows.metadata["text"]
    elif rows.item_id is not None and len(set(rows.item_id)) == len(rows):
        names = rows.item_id
    items, examples = distinct([[str(item)] for item in names])
    first = np.unique(examples[:, 0], return_index=True)[1]
    return make_task(name, items, examples, labels.astype(np.int64), [str(value) for value in values]), first


def held_out(examples: Sequence[Iterable[Hashable]], share: float, seed: int) -> np.ndarray:
    """Choose about a fraction `share` of the examples to hold out.

    Examples that share an item, directly or through other examples, form a group that is not divided. Groups are drawn
    at random and held out as long as they fit into the share.

    Args:
        examples: The items of each example.
        share: Fraction of the examples to hold out.
        seed: Seed of the draw.

    Returns:
        (n,) mask, True for held-out examples.

    Raises:
        InputError: If no group fits into the share.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    index: dict[Hashable, int] = {}
    links = [(row, index.setdefault(item, len(index))) for row, items in enumerate(examples) for item in items]
    row, item = np.array(links).T
    n, m = len(examples), len(index)
    graph = coo_array((np.ones(len(row)), (row, n + item)), shape=(n + m, n + m))
    groups = np.unique(connected_components(graph, directed=False)[1][:n], return_inverse=True)[1]
    sizes = np.bincount(groups)
    held = np.zeros(n, bool)
    for group in np.random.default_rng(seed).permutation(len(sizes)):
        if held.sum() + sizes[group] <= share * n:
            held |= groups == group
    if not held.any():
        raise InputError(
            f"held_out = {share:g} of {n} examples holds out none, because the smallest group that shares items has "
            f"{sizes.min()}; raise held_out, or set it to 0"
        )
    return held
