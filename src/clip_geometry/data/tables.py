"""Tables of strings from .csv, .tsv, .parquet and .jsonl, and from line-aligned text files, one per language."""

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Any

from clip_geometry.data.base import is_unicode, revision
from clip_geometry.io import reading
from clip_geometry.io.reading import parse_json, read_text
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, did_you_mean, listed, shown

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl")
PLACE = "{language}"  # in the path of line-aligned text files
LANGUAGE = re.compile("[a-z]{2}(?:[-_][A-Za-z]{2,4})?")  # en, zh-CN; not the txt of train.txt
CAPTION_NUMBER = re.compile(r"(?<=\w)#\d+$")  # lists of captions have 1000092795.jpg#2


@dataclass(frozen=True)
class Table:
    """Named columns of equal length.

    Attributes:
        path: How errors name the table.
        names: Of the columns.
        values: Name → the column, read when called.
        files: What it was read from, if not the file `path`.
        languages: The columns that hold captions, if known.
        dropped: Image → how many of its captions are not among the rows.
    """

    path: Path
    names: tuple[str, ...]
    values: Callable[[str], list[Any]]
    files: tuple[Path, ...] = ()
    languages: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)

    def revision(self) -> str:
        """Return a hash that changes with the files it was read from."""
        files = self.files or (self.path,)
        root = files[0].parent
        return revision(root, [os.path.relpath(file, root) for file in files])

    def strings(self, name: str, *, numbers: bool = False) -> list[str]:
        """Return a column whose cells are all non-empty strings (`numbers`: or integers, as decimal digits).

        Raises:
            InputError: For an unknown column and for the first other cell.
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
    """Read the table in a file by its suffix; raise InputError for a file that is not such a table."""
    path = existing_file(path, f"a table ({' '.join(SUFFIXES)})")
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        # between tabs, quotation marks are text
        style: Any = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if suffix == ".tsv" else {"strict": True}
        reader = csv.reader(io.StringIO(read_text(path, "a table"), newline=""), **style)
        try:
            (_, names), *rows = [(reader.line_num, row) for row in reader if row] or [(1, [])]
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num}, is not CSV: {error}") from None
        table = table_of_lines(path, names, rows, f"fields; the header has {len(names)}")
    elif suffix == ".jsonl":
        lines = enumerate(read_text(path, "a table").split("\n"), start=1)
        cells = [parse_json(line, f"{shown(path)}, line {k},", dict[str, Any]) for k, line in lines if line.strip()]
        table = _table(path, dict.fromkeys(name for row in cells for name in row), cells)
    elif suffix == ".parquet":
        import pyarrow.parquet as pq

        with reading.reading_with(path, suffix), pq.ParquetFile(path) as file:
            count, names = file.metadata.num_rows, tuple(file.schema_arrow.names)
        if count == 0:
            raise InputError(f"{path} has no rows")
        table = Table(path, names, lambda name: reading.read_table(path, columns=[name])[name].to_pylist())
    else:
        raise InputError(f"{path} has the suffix {path.suffix!r}; a table has one of {' '.join(SUFFIXES)}")
    if twice := sorted({name for name in table.names if table.names.count(name) > 1}):
        raise InputError(f"{path} has two columns {twice[0]!r}")
    return table


def table_of_lines(path: Path, names: Sequence[str], rows: Iterable[tuple[int, list[str]]], expected: str) -> Table:
    """Return the table of rows with their line numbers, all of them as wide as there are names."""
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(f"{path}, line {line}, has {len(row)} {expected}")
    return _table(path, names, [dict(zip(names, row, strict=True)) for _, row in rows])


def _table(path: Path, names: Iterable[str], rows: list[dict[str, Any]]) -> Table:
    if not rows:
        raise InputError(f"{path} has no rows")
    return Table(path, tuple(names), lambda name: [row.get(name) for row in rows])


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file, without blank ones at its end.

    Only line feeds end a line, since captions may hold rarer line ends.
    """
    return [line.removesuffix("\r") for line in read_text(path, "a text file").rstrip("\r\n").split("\n")]


def language_files(template: Path) -> dict[str, Path]:
    """Return the files of a path with {language} in it, by language; a file takes precedence over its .gz."""
    before, _, after = str(template.absolute()).partition(PLACE)
    found: dict[str, Path] = {}
    for ending in (after, f"{after}.gz"):
        pattern = f"{escape(before)}*{escape(ending)}"
        for file in Path("/").glob(pattern.lstrip("/")):
            language = str(file)[len(before) : len(str(file)) - len(ending)]
            if LANGUAGE.fullmatch(language):
                found.setdefault(language, file)
    return dict(sorted(found.items()))


def read_aligned(path: Path, files: Mapping[str, Path], image_names: Path | None = None) -> Table:
    """Read line-aligned files as a table with a column per language: line k of each is about the same thing.

    Args:
        path: How errors name the table.
        files: Language → file.
        image_names: A file with the image name of each line, for the column `image`; the number of a caption behind a
            name, as in x.jpg#2, is dropped.

    Raises:
        InputError: If the files differ in their number of lines.
    """
    sources = {**files, **({} if image_names is None else {"image": image_names})}
    columns = {name: read_lines(existing_file(file, "a text file")) for name, file in sources.items()}
    first = next(iter(sources))
    for name, lines in columns.items():
        if len(lines) != len(columns[first]):
            raise InputError(
                f"{sources[name]} has {len(lines)} lines and {sources[first]} {len(columns[first])}; "
                "line k of each must be about the same image"
            )
    if image_names is not None:
        columns["image"] = [CAPTION_NUMBER.sub("", name) for name in columns["image"]]
    return Table(path, tuple(columns), columns.__getitem__, files=tuple(sources.values()), languages=tuple(files))
