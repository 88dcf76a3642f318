"""Tables of strings from .csv, .tsv, .parquet and .jsonl."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clip_geometry.data.base import is_unicode, revision
from clip_geometry.io import reading
from clip_geometry.io.reading import parse_json, read_text
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, did_you_mean, listed, shown

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl")


@dataclass(frozen=True)
class Table:
    """Named columns of equal length.

    Attributes:
        path: Path of the table, for errors.
        names: Names of the columns.
        values: Function name → column, which reads the column when called.
        files: The files that the table was read from, if not the file `path`.
    """

    path: Path
    names: tuple[str, ...]
    values: Callable[[str], list[Any]]
    files: tuple[Path, ...] = ()

    def revision(self) -> str:
        """Return a hash that changes if the files that the table was read from change."""
        files = self.files or (self.path,)
        root = files[0].parent
        return revision(root, [os.path.relpath(file, root) for file in files])

    def strings(self, name: str, *, numbers: bool = False) -> list[str]:
        """Return a column whose cells are all non-empty strings.

        Args:
            name: The column.
            numbers: Also accept integers, as decimal digits.

        Raises:
            InputError: The column is unknown, or a cell has another value; the message names the first one.
        """
        if name not in self.names:
            hint = did_you_mean(name, self.names) or f"; it has {listed(self.names)}"
            raise InputError(f"{shown(self.path)} has no column {shown(name)}{hint}")
        cells: list[Any] = self.values(name)
        if numbers:
            cells = [str(cell) if isinstance(cell, int) and not isinstance(cell, bool) else cell for cell in cells]
        for row, cell in enumerate(cells, start=1):
            where = f"row {row} of column {name!r} in {self.path}"
            if cell is None or cell == "":
                raise InputError(f"{where} is empty; fill or remove it")
            if not isinstance(cell, str):
                raise InputError(f"{where} holds {type(cell).__name__}; text was expected")
            if not is_unicode(cell):
                raise InputError(f"{where} holds text that is not Unicode")
        return cells


def read_table(path: Path) -> Table:
    """Read a table in the format given by the file's suffix; raise InputError if the file is not such a table."""
    path = existing_file(path, f"a table ({' '.join(SUFFIXES)})")
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        columns = reading.read_csv(path, as_texts=True)
        table = Table(path, tuple(columns.column_names), lambda name: columns[name].to_pylist())
        count = columns.num_rows
    elif suffix == ".jsonl":
        lines = enumerate(read_text(path, "a table").split("\n"), start=1)
        rows = [parse_json(line, f"{shown(path)}, line {k},", dict[str, Any]) for k, line in lines if line.strip()]
        names = dict.fromkeys(name for row in rows for name in row)
        table = Table(path, tuple(names), lambda name: [row.get(name) for row in rows])
        count = len(rows)
    elif suffix == ".parquet":
        import pyarrow.parquet as pq

        with reading.reading_with(path, suffix), pq.ParquetFile(path) as file:
            count = file.metadata.num_rows
            names = file.schema_arrow.names
        table = Table(path, tuple(names), lambda name: reading.read_table(path, columns=[name])[name].to_pylist())
    else:
        raise InputError(f"{path} has the suffix {path.suffix!r}; a table has one of {' '.join(SUFFIXES)}")
    if count == 0:
        raise InputError(f"{path} has no rows")
    if twice := sorted({name for name in table.names if table.names.count(name) > 1}):
        raise InputError(f"{path} has two columns named {twice[0]!r}; rename or remove one")
    return table


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file, without blank lines at the end.

    Only line feeds end a line, because captions may contain rarer line separators.
    """
    return [line.removesuffix("\r") for line in read_text(path, "a text file").rstrip("\r\n").split("\n")]
