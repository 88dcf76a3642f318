"""LanceDB: a table, the folder X.lance, or a database, a folder of tables."""

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clip_geometry.embeddings import FileRows, Reader, joined
from clip_geometry.formats.format import Sides, reading_with, register
from clip_geometry.formats.tables import plain_columns, rows_of_lists, sides_of_table, vector_columns
from clip_geometry.formats.vectors import modality_of
from clip_geometry.reading import require_memory
from clip_geometry.registry import library, shown


def read_lance(path: Path) -> Sides:
    """Read the latest version of a table: vector columns, item_id (or id), label, modality and plain columns."""
    path = path if path.suffix.lower() == ".lance" else next(path.glob("*.lance"))
    with reading_with(path, "LanceDB"):
        table = _table(path)
        n, plain, vectors = table.count_rows(), plain_columns(table.schema, path), {}
        for name in vector_columns(table.schema, path):
            first = rows_of_lists(_read(table, [name], 0, 1).column(name), f"{shown(path)}, column {shown(name)},")
            require_memory(min(n, FileRows.SPAN) * first.shape[1] * first.itemsize, f"{shown(path)}, column {name},")
            opened = functools.partial(_opened, path, table.version, name)
            vectors[name] = joined([FileRows(opened, (n, first.shape[1]), first.dtype)])
        beside = _read(table, plain, 0, n) if plain else table.schema.empty_table().select([])
        return sides_of_table(vectors, beside, path, ids=True)


def _table(path: Path, version: int | None = None) -> Any:
    os.environ.setdefault("LANCEDB_LOG", "error")  # its warnings of a damaged table would stand beside our sentence
    table = library("lancedb", "lancedb", shown(path)).connect(path.parent).open_table(path.stem)
    table.checkout(table.version if version is None else version)  # what is written meanwhile has other rows
    return table


def _read(table: Any, columns: list[str], start: int, stop: int) -> Any:
    return table.search().select(columns).offset(start).limit(stop - start).to_arrow()


@contextmanager
def _opened(path: Path, version: int, name: str) -> Iterator[Reader]:
    with reading_with(path, "LanceDB"):
        table = _table(path, version)
        yield lambda start, stop: rows_of_lists(_read(table, [name], start, stop).column(name), shown(path))


def is_lance(folder: Path) -> bool:
    """Whether a folder is a table, or a database of one. Of others, the tables called after modalities are read."""
    return folder.suffix.lower() == ".lance" or [modality_of(each.stem) for each in folder.glob("*.lance")] == [None]


register("lance", read_lance, is_lance)
