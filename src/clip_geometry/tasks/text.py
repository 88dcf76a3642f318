"""Tasks on sentences and pairs of them: where their tables are found, and how a table becomes a task."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clip_geometry.data.tables import SUFFIXES, Table, read_table
from clip_geometry.registry import InputError, did_you_mean
from clip_geometry.tasks.base import FileTaskConfig, Task, single_label_task
from clip_geometry.tasks.hub import hub_table

LABELS = ("label", "gold_label")
NO_LABEL = (None, "", "-", "-1", -1)  # "-": the annotators of SNLI found no majority


@dataclass(frozen=True)
class TextSource:
    """columns: of the texts, the first of these groups that a table has. files: where a folder may have the table.
    hub: data set, its subset, and the split there.
    """

    columns: tuple[tuple[str, ...], ...]
    class_names: tuple[str, ...]
    files: tuple[str, ...]
    hub: tuple[str, str | None, str]


def load_text_task(config: FileTaskConfig, source: TextSource) -> Task:
    """Distinct texts are distinct strings as they are: neither case nor spaces are touched. Labels are numbers or names
    of classes."""
    table = _table(config, source)
    columns = next((group for group in source.columns if set(group) <= set(table.names)), None)
    label = next((name for name in LABELS if name in table.names), None)
    if columns is None or label is None:
        wanted = " or ".join(", ".join((*group, "label")) for group in source.columns)
        raise InputError(f"{table.path} has the columns {', '.join(table.names)}; {config.name} needs {wanted}")
    place = {name: k for k, name in enumerate(source.class_names)}
    labels = [_place(cell, place, table, row) for row, cell in enumerate(table.values(label), start=1)]
    return single_label_task(config, [texts_of(table, name) for name in columns], labels, source.class_names)


def find_file(folder: Path | None, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None) if folder else None


def shared_folder(name: str) -> Path | None:
    """$CLIP_GEOMETRY_DATA/name, if that variable is set."""
    shared = os.environ.get("CLIP_GEOMETRY_DATA")
    return Path(shared).expanduser() / name if shared else None


def file_at(config: FileTaskConfig, names: Sequence[str], default: Path | None) -> Path | None:
    """config.path if it is a file, else the first of the names that it, or else the default folder, has.

    None only without a path. Raises InputError for a path that does not exist and for a folder without the file.
    """
    if config.path is None:
        return find_file(default, names)
    if not config.path.is_dir():
        return config.path
    file = find_file(config.path, names)
    if file is None:
        raise InputError(f"{config.path} holds no {config.name}; expected {' or '.join(names)} in it")
    return file


def _table(config: FileTaskConfig, source: TextSource) -> Table:
    file = file_at(config, source.files, shared_folder("text"))
    if file is not None:
        return read_table(file)
    instead = (
        f"download it elsewhere and give its file ({' '.join(SUFFIXES)}) or folder with path=…, "
        f"or put it at $CLIP_GEOMETRY_DATA/text/{source.files[0]}"
    )
    return hub_table(*source.hub, instead)


def texts_of(table: Table, name: str) -> list[str]:
    """A column of texts, the empty one among them where it occurs."""
    cells = table.values(name)
    for row, cell in enumerate(cells, start=1):
        if not isinstance(cell, str):
            raise InputError(
                f"row {row} of column {name!r} in {table.path} holds {type(cell).__name__}; text was expected"
            )
    return cells


def plain_label(cell: Any) -> Any:
    """None where there is no label; a whole number that a table holds as 1.0, because others are missing, as 1."""
    if cell in NO_LABEL or cell != cell:
        return None
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def _place(cell: Any, place: dict[str, int], table: Table, row: int) -> int | None:
    label = plain_label(cell)
    if label is None or isinstance(label, int):
        return label
    if isinstance(label, str) and (label in place or label.isdecimal()):
        return place[label] if label in place else int(label)
    near = did_you_mean(str(label), place)
    raise InputError(f"row {row} of {table.path} has the label {label!r}; expected one of {', '.join(place)}{near}")
