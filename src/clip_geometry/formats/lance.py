"""LanceDB: a table, the folder X.lance, or a database, a folder of tables."""

import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import LazyRows, in_memory_or_lazy, is_large
from clip_geometry.formats.format import Format, Sides, formats
from clip_geometry.formats.tables import columns_of, plain_columns, rows_of_lists, sides_of_lists, vector_columns
from clip_geometry.formats.vectors import UNNAMED, check_vectors, modality_of
from clip_geometry.reading import damaged, require_memory
from clip_geometry.registry import InputError, library, listed, shown

KIND = "LanceDB"
SUFFIX = ".lance"


def read_lance(path: Path) -> Sides:
    """Read the latest version of a table: vector columns, item_id (or id), label, modality and plain columns.

    Of a database with one table, or with tables that are called after modalities, read these.
    """
    if path.suffix.lower() == SUFFIX:
        return _read_table(path)
    tables = sorted(folder for folder in path.glob(f"*{SUFFIX}") if folder.is_dir())
    named = {modality_of(table.stem) or UNNAMED: table for table in tables}
    if len(tables) > 1 and (UNNAMED in named or len(named) < len(tables)):
        raise InputError(f"{shown(path)} has the tables {listed(each.name for each in tables)}: give one of them")
    found: Sides = {}
    for modality, table in named.items():
        sides = _read_table(table)
        own = {modality: replace(sides[UNNAMED], modality=modality)} if set(sides) == {UNNAMED} else sides
        if twice := own.keys() & found.keys():
            raise InputError(f"{shown(path)} has two tables of {min(twice)} rows; give one of them")
        found |= own
    return found


def _read_table(path: Path) -> Sides:
    with _opened(path) as table, _panics(path):
        schema, version, n = table.schema, table.version, table.count_rows()
        found = vector_columns(schema, path)
        plain = plain_columns(schema, path)
        columns = columns_of(_read(table, plain, 0, n)) if plain else {}
        if any(len(column) != n for column in columns.values()):
            raise damaged(path, KIND, f"it has not {n} values in each column")
        vectors = {name: _vectors(table, path, name, version, n) for name in found}
        return sides_of_lists(vectors, columns, schema, path, ids=True)


@contextmanager
def _opened(path: Path, version: int | None = None) -> Iterator[Any]:
    os.environ.setdefault("LANCEDB_LOG", "error")  # its warnings of a damaged table would stand beside our sentence
    lancedb = library("lancedb", "lancedb", shown(path))
    with _panics(path):
        table = lancedb.connect(path.parent).open_table(path.stem)
        if version is not None:  # what was written since the first look has other rows
            table.checkout(version)
    yield table


@contextmanager
def _panics(path: Path) -> Iterator[None]:
    """Turn errors of the library, and panics of what it is written in, which are no Exception, into one sentence."""
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        said = re.sub(r", /\S+:\d+.*", "", str(error), flags=re.DOTALL)  # where in its own source
        raise damaged(path, KIND, said.partition("\n")[0] or type(error).__name__) from None


def _read(table: Any, columns: list[str], start: int, stop: int) -> Any:
    return table.search().select(columns).offset(start).limit(stop - start).to_arrow()


def _vectors(table: Any, path: Path, name: str, version: int, n: int) -> Any:
    source = f"{shown(path)}, column {shown(name)},"
    first = rows_of_lists(_read(table, [name], 0, min(n, 1)).column(name), source)
    d = first.shape[1]
    check_vectors(np.zeros((0, d), first.dtype), source)
    if not n:
        return first
    require_memory(0 if is_large((n, d)) else n * d * first.dtype.itemsize, source)
    opened = functools.partial(_opened_column, path, name, version, d)
    return in_memory_or_lazy([LazyRows(opened, (n, d), first.dtype)])


@contextmanager
def _opened_column(path: Path, name: str, version: int, d: int) -> Iterator["_Column"]:
    with _opened(path, version) as table:
        yield _Column(table, path, name, d)


class _Column:
    """A slice reads the vectors of a table in the order in which they were added."""

    def __init__(self, table: Any, path: Path, name: str, d: int):
        self.table, self.path, self.name, self.d = table, path, name, d

    def __getitem__(self, rows: slice) -> np.ndarray:
        source = f"{shown(self.path)}, column {shown(self.name)},"
        if rows.start == rows.stop:
            return np.zeros((0, self.d), np.float16)
        with _panics(self.path):
            found = rows_of_lists(_read(self.table, [self.name], rows.start, rows.stop).column(self.name), source)
        if found.shape != (rows.stop - rows.start, self.d):
            raise damaged(self.path, KIND, f"rows {rows.start} to {rows.stop} have the shape {list(found.shape)}")
        return found


formats.add(
    "lance",
    Format(
        title="LanceDB table",
        holds="vector columns are modalities by their names; item_id (or id), label, modality, plain columns",
        streams="read in blocks",
        read=read_lance,
        suffixes=(SUFFIX,),
        recognizes=lambda folder: (
            folder.suffix.lower() == SUFFIX or any(path.is_dir() for path in folder.glob(f"*{SUFFIX}"))
        ),
        package="lancedb",
        limits="one table, or tables that are called after modalities; nested columns, such as images, are left out",
    ),
)
