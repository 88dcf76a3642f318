"""Tables of embeddings, .parquet: vectors, and everything else as metadata of the rows."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, StrictFloat, TypeAdapter, ValidationError

from clip_geometry.embeddings import Embeddings, LazyRows, chosen_rows
from clip_geometry.files import writing
from clip_geometry.formats.format import register
from clip_geometry.formats.vectors import GROUP, LABEL_NAMES, UNNAMED, Provenance, check_vectors, sides_by_name
from clip_geometry.modalities import modality_name
from clip_geometry.progress import note
from clip_geometry.reading import parse_json, read_table, require_memory
from clip_geometry.registry import InputError, listed, shown

if TYPE_CHECKING:
    import pyarrow as pa

VECTORS = "embedding"
NUMBERS = TypeAdapter(list[StrictFloat])  # parses a vector of 512 eight times faster than parse_json or NumPy
FACTS = b"clip_geometry"  # key in the file's metadata of what a table cannot hold


class Facts(BaseModel):
    """What an export writes there."""

    modality: Annotated[str, AfterValidator(modality_name)] | None = None
    language: str | None = None
    pair_on: Literal["item_id", "label"] = "item_id"
    provenance: Provenance = {}


# --- reading


def read_parquet(path: Path) -> dict[str, Embeddings]:
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


def is_export(path: Path) -> bool:
    """Whether a .parquet file is one that `write_parquet` wrote."""
    import pyarrow.parquet as pq

    try:
        return FACTS in (pq.read_schema(path).metadata or {})
    except (OSError, ValueError):  # another table beside the rows, whatever it is
        return False


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


def sides_of_table(
    vectors: Mapping[str, Any], beside: "pa.Table", path: Path, *, ids: bool = False
) -> dict[str, Embeddings]:
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


def sides_of_columns(
    vectors: Mapping[str, Any],
    columns: dict[str, np.ndarray],
    path: Path,
    facts: Facts | None = None,
    *,
    ids: bool = False,
) -> dict[str, Embeddings]:
    """Return the sides of a table: those of its vector columns, or of the values of its column `modality`."""
    facts = facts or Facts()
    if ids and "item_id" not in columns and "id" in columns:
        columns = {"item_id": columns.pop("id"), **columns}
    of_row = columns.pop("modality", None) if set(vectors) == {UNNAMED} else None
    item_id = columns.pop("item_id", None)
    label = next((name for name in columns if name.casefold() in LABEL_NAMES), None)
    labels = None if label is None else columns.pop(label)
    sides = {
        modality: Embeddings(
            rows,
            modality,
            item_id=item_id,
            labels=labels,
            language=facts.language,
            pair_on=facts.pair_on,
            metadata=columns,
            provenance={**facts.provenance, "source": str(path), "dtype": str(rows.dtype)},
        )
        for modality, rows in vectors.items()
    }
    return sides if of_row is None else _by_modality(sides[UNNAMED], of_row, path)


def _by_modality(rows: Embeddings, of_row: np.ndarray, path: Path) -> dict[str, Embeddings]:
    """Return the rows of each value of the column `modality`, in the order of their first."""
    what = f"{shown(path)}, column 'modality':"
    names = [modality_name(name, what) for name in dict.fromkeys(of_row.tolist())]
    sides = {}
    for name in names:
        numbers, lazy = np.flatnonzero(of_row == name), isinstance(rows.vectors, LazyRows)
        vectors = chosen_rows(rows.vectors, numbers) if lazy else None
        sides[name] = replace(rows.take(numbers, vectors=vectors), modality=name)
    if len(sides) > 1 and (rows.item_id is None or len(set(rows.item_id)) == len(rows)):
        note(
            f"{shown(path)} has no column 'item_id' with the same value in rows that pair, so they pair by position or "
            f"not at all; other columns are {listed(rows.metadata)}"
        )
    return sides


# --- writing


def write_parquet(embeddings: Embeddings, path: Path) -> None:
    """Write a table with the vectors in the column "embedding", beside item_id, label and the rest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = columns_beside(embeddings)
    facts = {name: getattr(embeddings, name) for name in ("modality", "language", "pair_on")}
    facts["provenance"] = dict(embeddings.provenance)

    def group(start: int) -> pa.Table:
        part = {name: array[start : start + GROUP] for name, array in arrays.items()}
        part[VECTORS] = vectors_of(embeddings.vectors[start : start + GROUP])
        return pa.table(part).replace_schema_metadata({FACTS: json.dumps(facts, default=str)})

    # vectors hardly repeat and need no dictionary
    with writing(path) as file, pq.ParquetWriter(file, group(0).schema, use_dictionary=list(arrays)) as writer:  # pyright: ignore
        for start in range(0, len(embeddings), GROUP):
            writer.write_table(group(start))


def columns_beside(side: Embeddings) -> "dict[str, pa.Array]":
    """Return what is known of the rows: item_id, label and the metadata."""
    own = {"item_id": side.item_id, "label": side.labels}
    own = {name: column for name, column in own.items() if column is not None}
    return {name: arrow_column(column) for name, column in {**own, **side.metadata, **own}.items()}


def arrow_column(values: np.ndarray) -> "pa.Array":
    """Return a column for a table; values of several kinds, which Arrow refuses, become text."""
    import pyarrow as pa

    try:
        return pa.array(values if values.ndim == 1 else list(values))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return texts_of(values.tolist())


def texts_of(values: Iterable[Any]) -> "pa.Array":
    import pyarrow as pa

    return pa.array([None if value is None else str(value) for value in values], pa.string())


def vectors_of(block: Any) -> "pa.Array":
    """Return rows as a column of lists."""
    import pyarrow as pa

    block = np.ascontiguousarray(block)
    return pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), block.shape[1])


register("parquet", read_parquet)
