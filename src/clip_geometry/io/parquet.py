"""Parquet: tables of vectors and what belongs to their rows; columns of vectors, in other Arrow tables too."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import StrictFloat, TypeAdapter, ValidationError

from clip_geometry.embeddings import Embeddings
from clip_geometry.files import writing
from clip_geometry.io.format import Sets, Sides
from clip_geometry.io.reading import parse_json, read_table, require_memory
from clip_geometry.io.sides import Facts, check_vectors, sides_by_name, sides_of_columns
from clip_geometry.io.writing import columns_beside, dtype_of, tables_of
from clip_geometry.progress import note
from clip_geometry.registry import InputError, listed, shown

if TYPE_CHECKING:
    import pyarrow as pa

VECTORS = "embedding"
NUMBERS = TypeAdapter(list[StrictFloat])  # parses a vector of 512 eight times faster than parse_json or NumPy
FACTS = b"clip_geometry"  # key in the file's metadata of what a table cannot hold


def read(path: Path) -> Sides:
    """Read one vector column, with the modality of each row beside it or not, or one column per modality; item_id and
    label are recognized, other columns kept."""
    table = read_table(path)
    texts = text_vectors(dict(zip(table.column_names, table.columns, strict=True)))
    found = vector_columns(table.schema, path, texts)
    vectors = {}
    for name in found:
        column, source = table.column(name), f"{shown(path)}, column {shown(name)},"
        is_text = name in texts
        vectors[name] = rows_of_texts(column, texts[name], source) if is_text else rows_of_lists(column, source)
    return sides_of_table(vectors, table.drop_columns(found), path)


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write MODALITY.parquet into a folder, or the file that is named for the only modality."""
    is_file = not place.is_dir()
    if is_file and len(sets) != 1:
        raise InputError(f"{shown(out)} is one file and there are {len(sets)} modalities; give a folder")
    said = {}
    for name, side in sets.items():
        path = place if is_file else place / f"{name}.parquet"
        write_parquet(side, path)
        said[path.name] = f"{len(side)} rows, {dtype_of(side)}"
    return said


def write_parquet(embeddings: Embeddings, path: Path) -> None:
    """Write a table with the vectors in the column "embedding", beside item_id, label and the rest."""
    import pyarrow.parquet as pq

    columns = columns_beside(embeddings)
    facts = {name: getattr(embeddings, name) for name in ("modality", "language", "pair_on")}
    facts["provenance"] = dict(embeddings.provenance)
    schema, tables = tables_of(columns, {VECTORS: embeddings})
    schema = schema.with_metadata({FACTS: json.dumps(facts, default=str)})
    # vectors hardly repeat and need no dictionary
    with writing(path) as file, pq.ParquetWriter(file, schema, use_dictionary=list(columns)) as writer:  # pyright: ignore
        for table in tables:
            writer.write_table(table)


def is_export(path: Path) -> bool:
    """Whether a .parquet file is one that `write_parquet` wrote."""
    import pyarrow.parquet as pq

    try:
        return FACTS in (pq.read_schema(path).metadata or {})
    except (OSError, ValueError):  # another table beside the rows, whatever it is
        return False


# --- columns of vectors


def vector_columns(schema: "pa.Schema", path: Path, texts: Iterable[str] = ()) -> list[str]:
    """Return the names of the columns whose values are lists of floats, or else of `texts`; at least one."""
    import pyarrow.types as types

    kinds = types.is_list, types.is_large_list, types.is_fixed_size_list
    found = [
        field.name
        for field in schema
        if any(is_kind(field.type) for is_kind in kinds) and types.is_floating(field.type.value_type)
    ]
    if not (found := found or [*texts]):
        raise InputError(
            f"{shown(path)} has no vector column: none of {listed(schema.names)} is a list of floating point numbers"
        )
    return found


def plain_columns(schema: "pa.Schema", path: Path) -> list[str]:
    """Return the names of the columns of numbers and texts; others are said on stderr, such as images."""
    import pyarrow.types as types

    vectors = vector_columns(schema, path)
    binary = types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_nested
    left = [field.name for field in schema if any(is_kind(field.type) for is_kind in binary)]
    if others := [name for name in left if name not in vectors]:
        note(f"left out of {shown(path)}, which are no plain columns: {listed(others)}")
    return [name for name in schema.names if name not in left]


def rows_of_lists(column: Any, source: str) -> np.ndarray:
    """Return the lists of a column, or of a batch of it, as one (n, d) array."""
    import pyarrow.compute as pc

    if column.null_count:
        raise InputError(f"{source} has no vector in {column.null_count} of {len(column)} rows; drop those rows")
    lengths = pc.call_function("list_value_length", [column]).to_numpy(zero_copy_only=False)
    if len(lengths) and (lengths != lengths[0]).any():
        row = int(np.argmax(lengths != lengths[0]))
        raise InputError(f"{source} is ragged: row 0 has {lengths[0]} values and row {row} has {lengths[row]}")
    values = pc.call_function("list_flatten", [column])
    if values.null_count:
        raise InputError(f"{source} has {values.null_count} missing values inside its vectors")
    d = lengths[0] if len(lengths) else max(getattr(column.type, "list_size", 1), 1)
    return check_vectors(values.to_numpy().reshape(len(column), d), source)


def text_vectors(columns: "Mapping[str, pa.ChunkedArray]") -> dict[str, int]:
    """Return the columns of vectors as text, as databases print them, such as "[0.1,0.2]", with the length of the first
    one."""
    found = {}
    for name, column in columns.items():
        first = next((text for text in (value.as_py() for value in column) if text not in (None, "")), None)
        with suppress(ValidationError):
            found[name] = len(NUMBERS.validate_json(first)) if isinstance(first, str) else 0
    return {name: d for name, d in found.items() if d > 1}


def rows_of_texts(column: Any, d: int, source: str) -> np.ndarray:
    """Return the vectors of a column of texts as one (n, d) array of float64."""
    require_memory(8 * len(column) * d, source)
    rows = np.empty((len(column), d))
    for k, text in enumerate(value.as_py() or "" for value in column):
        try:
            numbers = NUMBERS.validate_json(text)
        except ValidationError:
            numbers = []
        if len(numbers) != d:
            said = f"{source} has {shown(text, 40)} in row {k}; expected {d} numbers as in [0.1,0.2]"
            raise InputError(f"{said}, or leave the row out")
        rows[k] = numbers
    return rows


# --- columns beside them


def columns_of(table: "pa.Table") -> dict[str, np.ndarray]:
    """Return the columns as NumPy arrays: numbers as they are, everything else as objects."""
    import pyarrow as pa

    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        nested = pa.types.is_nested(column.type)
        columns[name] = np.fromiter(column.to_pylist(), object, len(column)) if nested else column.to_numpy()
    return columns


def sides_of_table(vectors: Mapping[str, Any], beside: "pa.Table", path: Path, *, ids: bool = False) -> Sides:
    """Return the sides of vector columns by their names, with what an export has written in the table beside.

    ids: take the column `id` for item_id where there is none.
    """
    metadata = (beside.schema.metadata or {}).get(FACTS, b"{}")
    facts = parse_json(metadata, f"the metadata of {shown(path)}", Facts)
    if facts.modality is not None and len(vectors) == 1:
        found = {facts.modality: next(iter(vectors))}
    else:
        found = sides_by_name(vectors, path, "vector columns")
    sides = {modality: vectors[name] for modality, name in found.items()}
    return sides_of_columns(sides, columns_of(beside), path, facts, ids=ids)
