"""Classification tasks: distinct items, examples that consist of one or two items, and labels."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from clip_geometry.config import Config, digest, validate
from clip_geometry.data import path_of
from clip_geometry.data.base import Dataset, DatasetConfig, DatasetEntry, Side, datasets, is_unicode, known_split
from clip_geometry.data.tables import SUFFIXES, Table, read_table
from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import InputError, Registry, did_you_mean
from clip_geometry_experiments.kit.corpora import fetching, shared_file


@dataclass(frozen=True, eq=False)
class Task:
    """Examples of one or two items each, with one or several labels. Item k belongs to row k of the embeddings.

    Attributes:
        name: Name of the task.
        items: Distinct strings in order of first appearance (texts, words, or ids of images).
        examples: (n, 1) or (n, 2) int64, indices into items.
        labels: (n,) int64, indices into class_names; or (n, L) bool, which of the class_names an example has.
        class_names: Names of the classes.
        revision: Hash that changes if any of these changes.
        dropped: Number of examples in the source without a label, which are left out.
    """

    name: str
    items: tuple[str, ...]
    examples: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    revision: str
    dropped: int = 0

    @property
    def multi_label(self) -> bool:
        """Whether an example can have several labels."""
        return self.labels.ndim == 2

    @property
    def width(self) -> int:
        """The number of items per example, 1 or 2, whose embeddings are concatenated."""
        return self.examples.shape[1]

    def __len__(self) -> int:
        return len(self.examples)


T = TypeVar("T")

# resolve paths, so that the same file always has the same name
Located = Annotated[Path, AfterValidator(lambda path: path_of(path).resolve())]


class TaskConfig(Config):
    """Options of every task; a subclass adds its own.

    Attributes:
        name: Name of the task.
        split: One of SPLITS.
        limit: Use only this many examples. They are spread evenly over the source, because it may be sorted by label.
    """

    SPLITS: ClassVar[tuple[str, ...]] = ("all",)
    name: str
    split: str = "all"
    limit: int | None = Field(default=None, ge=2)

    @field_validator("split")
    @classmethod
    def _known_split(cls, split: str) -> str:
        return known_split(split, cls.SPLITS)


class FileTaskConfig(TaskConfig):
    """Options of a task that is read from a file.

    Attributes:
        path: The file. Default: the file of the task in $CLIP_GEOMETRY_DATA.
    """

    path: Located | None = None


@dataclass(frozen=True)
class TaskEntry:
    """A registered task.

    Args:
        config: Config class of the task.
        load: Function that loads the task of a config.
        kind: The type of its targets: "class" (loaded as a `Task`), "score" or "span" (loaded as the classes of
            `targets`).
    """

    config: type[TaskConfig]
    load: Callable[[Any], Any]
    kind: str = "class"


tasks: Registry[TaskEntry] = Registry("task", "clip-geometry list tasks")


def resolve_task(name_or_section: str | Mapping[str, Any] | TaskConfig) -> TaskConfig:
    """Return the config of a task from its name or a section such as {name: wnli, limit: 64}."""
    if isinstance(name_or_section, TaskConfig):
        return name_or_section
    section = {"name": name_or_section} if isinstance(name_or_section, str) else name_or_section
    if not isinstance(section, Mapping) or not isinstance(section.get("name"), str):
        names = did_you_mean("", tasks, listed_by=tasks.listed_by)
        raise InputError(f"expected the name of a task or a section with the key 'name'{names}")
    values = {key: str(value) if isinstance(value, Path) else value for key, value in section.items()}
    return validate(tasks[section["name"]].config, values, f"task {section['name']}")


def load_task(config: TaskConfig) -> Any:
    """Load the task of a config from its files or from the Hugging Face hub."""
    return tasks[config.name].load(config)


def single_label_task(
    config: TaskConfig, texts: Sequence[Sequence[str]], labels: Sequence[int | None], class_names: Sequence[str]
) -> Task:
    """Return a task of texts. Examples with a label of None or -1 are left out.

    Args:
        config: Options of the task.
        texts: One or two columns of texts. Equal strings are the same item.
        labels: Indices into class_names.
        class_names: Names of all classes.

    Raises:
        InputError: If a label is not a class, or if no example has a label.
    """
    labeled = [row for row, label in enumerate(labels) if label is not None and label != -1]
    rows = spread(labeled, config.limit)
    codes = [labels[row] for row in rows]
    if not codes:
        raise InputError(
            f"none of the {len(labels)} examples of {config.name}/{config.split} has a label; choose another split"
        )
    for code in codes:
        if code not in range(len(class_names)):
            raise InputError(
                f"{config.name} has the label {code!r}; expected 0 to {len(class_names) - 1} for "
                f"{', '.join(class_names)}, and -1 or nothing for no label"
            )
    items, examples = distinct([[column[row] for column in texts] for row in rows])
    dropped = len(labels) - len(labeled)
    return make_task(config.name, items, examples, np.array(codes, dtype=np.int64), class_names, dropped)


def multi_label_task(
    config: TaskConfig, labels_of: Mapping[str, Iterable[str]], class_names: Sequence[str], dropped: int = 0
) -> Task:
    """Return a task of items that can have several labels.

    Args:
        config: Options of the task.
        labels_of: Item → its labels, at least one of the class_names.
        class_names: Names of all classes.
        dropped: Number of items without a label, which were left out.

    Raises:
        InputError: If there are no items.
    """
    items = spread(list(labels_of), config.limit)
    if not items:
        raise InputError(f"{config.name} has no words that have both a label and a vector")
    place = {name: k for k, name in enumerate(class_names)}
    labels = np.zeros((len(items), len(place)), dtype=bool)
    for row, item in enumerate(items):
        labels[row, [place[name] for name in labels_of[item]]] = True
    return make_task(config.name, items, np.arange(len(items))[:, None], labels, class_names, dropped)


def make_task(
    name: str,
    items: Sequence[str],
    examples: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    dropped: int = 0,
) -> Task:
    """Return a task with its revision, a hash of its content that does not depend on where the task was read from.

    Args:
        name: Name of the task.
        items: Distinct items.
        examples: (n, 1) or (n, 2) int64, indices into items.
        labels: (n,) int64 or (n, L) bool.
        class_names: Names of all classes.
        dropped: Number of examples without a label, which were left out.

    Raises:
        InputError: If an item is not Unicode, or if all examples have the same label.
    """
    for item in items:
        if not is_unicode(item):
            raise InputError(f"{name} has the text {item!a}, which is not Unicode; correct it")
    if len(np.unique(labels, axis=0)) < 2:
        left_out = f" ({dropped} without a label are left out)" if dropped else ""
        raise InputError(
            f"all {len(labels)} examples of {name}{left_out} have the same label; expected at least two classes"
        )
    content = [list(items), examples.tolist(), labels.tolist(), list(class_names)]
    return Task(name, tuple(items), examples, labels, tuple(class_names), digest(content), dropped)


def require_columns(table: Table, *groups: Sequence[str]) -> Sequence[str]:
    """Return the first group of columns that a table has.

    Raises:
        InputError: If the table lacks a column of every group.
    """
    for columns in groups:
        if set(columns) <= set(table.names):
            return columns
    expected = " or ".join(map(", ".join, groups))
    raise InputError(f"{table.path} has the columns {', '.join(table.names)}; expected {expected}")


def distinct(rows: Iterable[Iterable[str]]) -> tuple[list[str], np.ndarray]:
    """Return the distinct strings in order of first appearance, and the index of each string, (n, k) int64."""
    place: dict[str, int] = {}
    examples = [[place.setdefault(text, len(place)) for text in row] for row in rows]
    return list(place), np.array(examples, dtype=np.int64)


def spread(rows: Sequence[T], limit: int | None) -> list[T]:
    """Return `limit` of the rows at equal steps, starting from the first, or all rows if there are not more.

    Args:
        rows: The rows.
        limit: Number of rows to return; None for all.
    """
    if limit is None or limit >= len(rows):
        return list(rows)
    return [rows[k * len(rows) // limit] for k in range(limit)]


# --- the table of a task: at a path, in the shared folder, or on the Hugging Face hub


def published_table(config: FileTaskConfig, name: str, hub: tuple[str, str | None], split: str | None = None) -> Table:
    """Return the table of a task, downloaded with the package `datasets` if there is no file.

    Args:
        config: Options of the task.
        name: Name of the file in $CLIP_GEOMETRY_DATA.
        hub: The data set and its subset on the Hugging Face hub.
        split: Name of the split on the hub. Default: the split of the config.
    """
    file = config.path or shared_file(name)
    if file is not None:
        return read_table(file)
    repository, subset = hub
    what = f"{repository}{f' ({subset})' if subset else ''}, split {split or config.split},"
    suffixes = " ".join(SUFFIXES)
    with fetching(what, f"give its file ({suffixes}) with path=…, or put it at $CLIP_GEOMETRY_DATA/{name}"):
        from datasets import load_dataset  # pyright: ignore[reportMissingImports]

        rows = load_dataset(repository, subset, split=split or config.split)
    return Table(Path(repository), tuple(rows.column_names), lambda name: list(rows[name]))


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
