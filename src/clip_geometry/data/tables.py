"""Tables of strings from .csv, .tsv, .parquet and .jsonl."""

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clip_geometry.data.files import is_unicode, read_lines, revision
from clip_geometry.paths import existing_file
from clip_geometry.reading import damaged, parse_json, read_text
from clip_geometry.registry import InputError, did_you_mean, listed, shown

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl")


@dataclass(frozen=True)
class Table:
    """Named columns of equal length; `values(name)` reads one of them.

    path: how errors name it. files: what it was read from, where that is not the file `path`. languages: the columns
    that hold captions, where that is known.
    """

    path: Path
    names: tuple[str, ...]
    values: Callable[[str], list[Any]]
    files: tuple[Path, ...] = ()
    languages: tuple[str, ...] = ()

    def revision(self) -> str:
        """Changes with the files it was read from."""
        files = self.files or (self.path,)
        root = files[0].parent
        return revision(root, [os.path.relpath(file, root) for file in files])

    def strings(self, name: str, *, numbers: bool = False) -> list[str]:
        """A column whose cells are all non-empty strings (`numbers`: or integers, as decimal digits).

        Raises InputError for an unknown column and for the first other cell.
        """
        if name not in self.names:
            hint = did_you_mean(name, self.names) or f"; it has {listed(self.names)}"
            raise InputError(f"{shown(self.path)} has no column {shown(name)}{hint}")
        return [self._string(name, row, cell, numbers) for row, cell in enumerate(self.values(name), start=1)]

    def _string(self, name: str, row: int, cell: Any, numbers: bool) -> str:
        if numbers and isinstance(cell, int) and not isinstance(cell, bool):
            return str(cell)
        if cell is None or cell == "":
            raise InputError(f"row {row} of column {name!r} in {self.path} is empty; fill or remove it")
        if not isinstance(cell, str):
            kind = type(cell).__name__
            raise InputError(f"row {row} of column {name!r} in {self.path} holds {kind}; text was expected")
        if not is_unicode(cell):
            raise InputError(f"row {row} of column {name!r} in {self.path} holds text that is not Unicode")
        return cell


def read_table(path: Path) -> Table:
    """The table in a file, read by its suffix. Raises InputError for a file that is not such a table."""
    path = existing_file(path, f"a table ({' '.join(SUFFIXES)})")
    readers = {".csv": _read_csv, ".tsv": read_tsv, ".parquet": _read_parquet, ".jsonl": _read_jsonl}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path} has the suffix {path.suffix!r}; a table has one of {' '.join(SUFFIXES)}")
    table = readers[path.suffix.lower()](path)
    twice = sorted({name for name in table.names if table.names.count(name) > 1})
    if twice:
        raise InputError(f"{path} has two columns {twice[0]!r}")
    return table


def _read_csv(path: Path) -> Table:
    reader = csv.reader(io.StringIO(read_text(path, "a table"), newline=""), strict=True)
    try:
        header, *rows = [(reader.line_num, row) for row in reader if row] or [(1, [])]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}, is not CSV: {error}") from None
    names = header[1]
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(f"{path}, line {line}, has {len(row)} fields; the header has {len(names)}")
    return _table(path, names, [dict(zip(names, row, strict=True)) for _, row in rows])


TAB = re.compile("\t")


def read_tsv(path: Path, names: Sequence[str] | None = None, between: re.Pattern[str] = TAB) -> Table:
    """Columns between tabs; quotation marks are text. The names are those in the first line, unless given."""
    rows = [(number, between.split(line)) for number, line in enumerate(read_lines(path), start=1)]
    expected = f"expected are {names and len(names)}: {', '.join(names or ())}"
    if names is None:
        (_, names), *rows = rows
        expected = f"the header has {len(names)}"
    for number, row in rows:
        if len(row) != len(names):
            raise InputError(f"{path}, line {number}, has {len(row)} fields between tabs; {expected}")
    return _table(path, names, [dict(zip(names, row, strict=True)) for _, row in rows])


def _read_jsonl(path: Path) -> Table:
    rows = []
    for number, line in enumerate(read_text(path, "a table").split("\n"), start=1):
        if not line.strip():
            continue
        rows.append(parse_json(line, f"{shown(path)}, line {number},", dict[str, Any]))
    return _table(path, dict.fromkeys(name for row in rows for name in row), rows)


def _table(path: Path, names: Iterable[str], rows: list[dict[str, Any]]) -> Table:
    if not rows:
        raise InputError(f"{path} has no rows")
    return Table(path, tuple(names), lambda name: [row.get(name) for row in rows])


def _read_parquet(path: Path) -> Table:
    import pyarrow.parquet as pq

    with readable_parquet(path):
        file = pq.ParquetFile(path)
    if file.metadata.num_rows == 0:
        raise InputError(f"{path} has no rows")

    def values(name: str) -> list[Any]:
        with readable_parquet(path):
            return file.read(columns=[name])[name].to_pylist()

    return Table(path, tuple(file.schema_arrow.names), values)


@contextmanager
def readable_parquet(path: Path) -> Iterator[None]:
    """Turns what pyarrow raises for a truncated or foreign file into an InputError."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError, ValueError, KeyError, MemoryError, OverflowError) as error:
        raise error if isinstance(error, InputError) else damaged(path, ".parquet", error) from None
