"""Numbers as text: .csv and .tsv, with or without a header."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clip_geometry.io.format import Sides
from clip_geometry.io.parquet import columns_of, rows_of_texts, text_vectors
from clip_geometry.io.reading import damaged, first_line, parsed_number, reading_with, require_memory
from clip_geometry.io.sides import LABEL_NAMES, sides_by_name, sides_of_columns
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.registry import InputError, listed, shown

if TYPE_CHECKING:
    import pyarrow as pa

FIRST = 2**22  # bytes in which the first line ends
BLOCK = 2**31 - 1  # bytes that pyarrow reads at once, in which it finds the types of columns
NAMED = {"", "item_id", "id", "modality", *LABEL_NAMES}  # columns that are no part of a vector, though numbers


def read(path: Path) -> Sides:
    """Read rows of numbers, as float64, which holds what float32 and float64 were written from.

    With a header, the columns NAME_0, NAME_1, … (or NAME0, …, or 0, 1, …) are the vectors of NAME, and all others are
    item_id (or id), label and metadata; without such names, columns of texts such as "[0.1,0.2]" are vectors, or all
    columns of numbers are one. Without a header, all columns are.
    """
    import pyarrow as pa
    from pyarrow import csv

    size = existing_file(path, "a table of numbers").stat().st_size
    require_memory(4 * size, shown(path))  # the text, its columns and the matrix of them
    delimiter, has_header = _form(path)
    blocks = csv.ReadOptions(use_threads=False, block_size=min(BLOCK, size + 1))
    blocks.autogenerate_column_names = not has_header
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    convert = csv.ConvertOptions(null_values=[""], strings_can_be_null=False, check_utf8=True)
    with reading_with(path, path.suffix):
        table = csv.read_csv(pa.OSFile(str(path)), blocks, parse, convert)
    if not table.num_rows:
        raise InputError(f"{shown(path)} has no rows; expected a line of numbers for each")
    columns = dict(zip(table.column_names, table.columns, strict=True))
    if len(columns) < table.num_columns:
        raise InputError(f"{shown(path)} has two columns of one name; keep one")
    vectors = _by_name(columns, path) if has_header else {"": list(columns)}
    if not any(vectors.values()):
        raise InputError(
            f"{shown(path)} has neither columns of numbers nor one of texts such as [0.1,0.2] for the vectors: its "
            f"columns are {listed(columns)}"
        )
    called = sides_by_name(vectors, path, "vectors")
    sides = {}
    for modality, stem in called.items():
        sides[modality] = np.column_stack([_numbers(columns.pop(name), name, path) for name in vectors[stem]])
    if "" in columns:  # an index of pandas
        columns["item_id"] = columns.pop("")
    return sides_of_columns(sides, columns_of(pa.table(columns)), path, ids=True)


def _form(path: Path) -> tuple[str, bool]:
    """Return what separates the fields of the first line, and whether they are names of columns: no numbers, or
    0, 1, 2, … and no others."""
    with path.open("rb") as file:
        first = file.readline(FIRST)
        file.seek(-1, 2)
        if file.read() not in (b"\n", b"\r"):
            note(f"{shown(path)} does not end with a line break; if it was cut short, its last number is wrong")
    line = first.decode("utf-8-sig", errors="replace").strip("\r\n")
    if len(first) == FIRST or "\ufffd" in line or not line.replace("\t", "").isprintable():
        raise damaged(path, path.suffix, "it does not begin with a line of text in UTF-8")
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=line.count)
    fields = [field.strip().strip('"') for field in line.split(delimiter)]
    numbers = [field for field in fields if _is_number(field)]
    return delimiter, not numbers or (len(numbers) > 1 and numbers == [str(k) for k in range(len(numbers))])


def _is_number(field: object) -> bool:
    """Whether a field, or the first of a column, is a number."""
    try:
        parsed_number(str(field))
    except ValueError:
        return False
    return True


def _numbers(column: "pa.ChunkedArray", name: str, path: Path) -> np.ndarray:
    if d := text_vectors({name: column}).get(name):
        return rows_of_texts(column, d, f"{shown(path)}, column {shown(name)},")
    try:
        numbers = column.cast("float64")
    except ValueError as error:  # 'abc'
        raise InputError(f"{shown(path)}, column {shown(name)}: {first_line(error)}") from None
    if missing := numbers.null_count:
        raise InputError(f"{shown(path)} has no number in {missing} of {len(column)} rows of column {shown(name)}")
    return numbers.to_numpy()


def _by_name(columns: "dict[str, pa.ChunkedArray]", path: Path) -> dict[str, list[str]]:
    """Return the columns of each vector: those with a number at the end of their name, in its order, or all."""
    numbered: dict[str, dict[int, str]] = {}
    for name in columns:
        bare = name.removesuffix("]")
        stem = bare.rstrip("0123456789")
        if 0 < len(number := bare[len(stem) :]) < 10:
            numbered.setdefault(stem.rstrip("_[-. "), {})[int(number)] = name
    found = {stem: [each[k] for k in sorted(each)] for stem, each in numbered.items() if len(each) > 1}
    found = {stem: names for stem, names in found.items() if any(_is_number(columns[name][0]) for name in names)}
    if not found and not (found := {name: [name] for name in text_vectors(columns)}):
        numbers = [name for name, each in columns.items() if _is_number(each[0]) and name.casefold() not in NAMED]
        found = {"vector": numbers}
        if numbers:
            note(f"{shown(path)}: the columns {listed(numbers)} are taken as the vector")
    return found
