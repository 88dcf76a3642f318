"""Numbers as text: .csv and .tsv, with or without a header."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clip_geometry.formats.format import Format, Sides, formats, reading_with
from clip_geometry.formats.tables import Facts, columns_of, sides_of_columns, take_ids
from clip_geometry.formats.vectors import LABEL_NAMES, UNNAMED, sides_by_name
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.reading import damaged, parsed_number, require_memory
from clip_geometry.registry import InputError, listed, shown

if TYPE_CHECKING:
    import pyarrow as pa

FIRST = 2**22  # bytes in which the first line ends
BLOCK = 2**31 - 1  # bytes that pyarrow reads at once, in which it finds the types of columns
NAMED = {"item_id", "id", "modality", *LABEL_NAMES}  # columns that are no part of a vector, though numbers


def read_csv(path: Path) -> Sides:
    """Read rows of numbers, as float64, which holds what float32 and float64 were written from.

    With a header, the columns NAME_0, NAME_1, … (or NAME0, …, or 0, 1, …) are the vectors of NAME, and all others are
    item_id (or id), label and metadata; without such names, all columns of numbers are the vector. Without a header, a
    first column of texts, or of distinct integers before fractions, is item_id, and a last one of texts, or of integers
    after fractions, the label.
    """
    import pyarrow as pa
    from pyarrow import csv

    path = existing_file(path, "a table of numbers")
    require_memory(4 * path.stat().st_size, shown(path))  # the text, its columns and the matrix of them
    delimiter, has_header = _form(path)
    size = path.stat().st_size
    with reading_with(path, path.suffix):
        table = csv.read_csv(
            pa.OSFile(str(path)),
            csv.ReadOptions(
                block_size=min(BLOCK, size + 1), autogenerate_column_names=not has_header, use_threads=False
            ),
            csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            csv.ConvertOptions(null_values=[""], strings_can_be_null=False, check_utf8=True),
        )
    if not table.num_rows:
        raise InputError(f"{shown(path)} has no rows; expected a line of numbers for each")
    if len(set(table.column_names)) < table.num_columns:
        raise InputError(f"{shown(path)} has two columns of one name; keep one")
    if has_header:
        vectors = _named_vectors(table, path)
        table = table.rename_columns(["item_id" if name == "" else name for name in table.column_names])  # an index
        called = sides_by_name(vectors, path, "vectors")
    else:
        table = _named_by_place(table, path)
        vectors, called = {UNNAMED: [name for name in table.column_names if re.fullmatch(r"f\d+", name)]}, None
    used = [name for columns in vectors.values() for name in columns]
    if not used:
        raise InputError(f"{shown(path)} has no columns of numbers: its columns are {listed(table.column_names)}")
    of_vectors = set(used)
    columns = dict(zip(table.column_names, table.columns, strict=True))  # looked up by name in constant time
    for name in used:
        if missing := columns[name].null_count:
            raise InputError(
                f"{shown(path)} has no number in {missing} of {table.num_rows} rows of column {shown(name)}"
            )
    others = [k for k, name in enumerate(table.column_names) if name not in of_vectors]
    sides = {
        modality: np.column_stack([columns[column].to_numpy() for column in vectors[name]]).astype(np.float64)
        for modality, name in (called or {UNNAMED: UNNAMED}).items()
    }
    return sides_of_columns(sides, take_ids(columns_of(table.select(others))), Facts(), path)


def _form(path: Path) -> tuple[str, bool]:
    """Return what separates the fields of the first line, and whether they are names of columns: no numbers, or
    0, 1, 2, … and no others."""
    with path.open("rb") as file:
        first = file.readline(FIRST)
        file.seek(-1, 2)
        if file.read() not in (b"\n", b"\r"):
            note(f"{shown(path)} does not end with a line break; if it was cut short, its last number is wrong")
    try:
        line = first.decode("utf-8-sig").strip("\r\n")
    except UnicodeDecodeError:
        raise damaged(path, path.suffix, "it is not text in UTF-8") from None
    if len(first) == FIRST or (not line.isprintable() and "\t" not in line):
        raise damaged(path, path.suffix, "it does not begin with a line of text")
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=line.count)
    fields = [field.strip().strip('"') for field in line.split(delimiter)]
    numbers = [field for field in fields if _is_number(field)]
    return delimiter, not numbers or (len(numbers) > 1 and numbers == [str(k) for k in range(len(numbers))])


def _is_number(field: str) -> bool:
    try:
        parsed_number(field)
    except ValueError:
        return False
    return True


def _kinds(table: "pa.Table") -> dict[str, str]:
    """Return i or f for the columns of numbers, and "" for others."""
    import pyarrow.types as types

    return {
        field.name: "f" if types.is_floating(field.type) else "i" if types.is_integer(field.type) else ""
        for field in table.schema
    }


def _require_numbers(table: "pa.Table", name: str, path: Path) -> None:
    """Raise InputError for a column of numbers but a few."""
    values = table.column(name).to_pylist()
    odd = ((k, value) for k, value in enumerate(values) if not _is_number(str(value)))
    row, value = next(odd, (0, values[0]))
    raise InputError(
        f"{shown(path)} has {shown(value)} in row {row} of column {shown(name)}, where a number was expected"
    )


def _numbered(name: str) -> tuple[str, int] | None:
    """Return ("image", 3) of "image_3", "image3" and "image[3]"; None for a name without a number at its end."""
    bare = name[:-1] if name and not (name[-1].isalnum() or name[-1] == "_") else name
    stem = bare.rstrip("0123456789")
    number = bare[len(stem) :]
    end = max((k + 1 for k, letter in enumerate(stem) if letter.isalnum()), default=0)
    return (stem[:end], int(number)) if 0 < len(number) < 10 else None


def _named_vectors(table: "pa.Table", path: Path) -> dict[str, list[str]]:
    """Return the columns of each vector by its name."""
    kinds = _kinds(table)
    numbered: dict[str, dict[int, str]] = {}
    for name in kinds:
        numbered_name = _numbered(name)
        if numbered_name is not None:
            stem, number = numbered_name
            numbered.setdefault(stem, {})[number] = name
    found = {name: [each[k] for k in sorted(each)] for name, each in numbered.items() if len(each) > 1}
    found = {name: columns for name, columns in found.items() if any(kinds[column] for column in columns)}
    for column in (column for columns in found.values() for column in columns if not kinds[column]):
        _require_numbers(table, column, path)
    plain = [name for name, kind in kinds.items() if kind and name and name.casefold() not in NAMED]
    if not found and plain:
        note(f"{shown(path)}: the columns {listed(plain)} are taken as the vector")
    return found or {"vector": plain}


def _named_by_place(table: "pa.Table", path: Path) -> "pa.Table":
    """Return the table with names for the columns that are no part of the vector: the first and the last, perhaps."""
    import pyarrow.compute as pc

    names, kinds = table.column_names, [*_kinds(table).values()]
    places = {0: "item_id", len(names) - 1: "label"} if len(names) > 1 else {}
    called = list(names)
    for k, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        column = table.column(k)
        counts = k in places and kind == "i" and "f" in kinds
        if k == 0 and counts:
            counts = pc.call_function("count_distinct", [column]).as_py() == len(table)
        if not kind and (
            k not in places or sum(_is_number(str(value)) for value in column.to_pylist()) > len(column) // 2
        ):
            _require_numbers(table, name, path)
        if not kind or counts:
            called[k] = places[k]
            note(f"{shown(path)}: the {'last' if k else 'first'} column is taken as {places[k]}")
    return table.rename_columns(called)


formats.add(
    "csv",
    Format(
        title="CSV, TSV",
        holds="columns NAME_0, NAME_1, … or all columns of numbers as float64; item_id (or id), label, modality and "
        "other columns",
        streams="",
        read=read_csv,
        suffixes=(".csv", ".tsv"),
        limits="in a folder of files it is not looked for",
        by_name=False,
    ),
)
