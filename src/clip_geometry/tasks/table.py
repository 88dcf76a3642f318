"""A task from the user's own table."""

from pydantic import Field

from clip_geometry.data.tables import Table, read_table
from clip_geometry.registry import InputError, did_you_mean
from clip_geometry.tasks.base import Located, Task, TaskConfig, TaskEntry, single_label_task, tasks
from clip_geometry.tasks.text import plain_label, texts_of


class TableConfig(TaskConfig):
    """path: .csv, .tsv, .parquet or .jsonl. text: one column, or the two whose embeddings are concatenated.

    label: the column of the labels, numbers or names; the classes are those that occur, sorted. Rows with an
    empty label, "-" or -1 are left out.
    """

    path: Located
    text: tuple[str, ...] = Field(default=("text",), min_length=1, max_length=2)
    label: str = "label"


def load(config: TableConfig) -> Task:
    table = read_table(config.path)
    for name in (*config.text, config.label):
        _check_column(table, name)
    labels = [plain_label(cell) for cell in table.values(config.label)]
    labels = [None if label is None else str(label) for label in labels]
    classes = _sorted({label for label in labels if label is not None})
    place = {name: k for k, name in enumerate(classes)}
    texts = [texts_of(table, name) for name in config.text]
    return single_label_task(config, texts, [None if label is None else place[label] for label in labels], classes)


def _check_column(table: Table, name: str) -> None:
    if name not in table.names:
        hint = did_you_mean(name, table.names) or f"; it has {', '.join(table.names)}"
        raise InputError(f"{table.path} has no column {name!r}{hint}")


def _sorted(values: set[str]) -> list[str]:
    """Numbers by size."""
    numbers = all(value.removeprefix("-").isdecimal() for value in values)
    return sorted(values, key=int) if numbers else sorted(values)


tasks.add("table", TaskEntry(TableConfig, load, "a table of your own with one or two columns of text and a label"))
