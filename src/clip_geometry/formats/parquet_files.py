"""Tables of embeddings in .parquet: vectors in columns of lists of floats, everything else as metadata of the rows."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from clip_geometry.embeddings import Embeddings
from clip_geometry.files import writing
from clip_geometry.formats.vectors import LABEL_NAMES, check_vectors, sides_by_name
from clip_geometry.reading import parse_json, read_table
from clip_geometry.registry import InputError, listed, shown

VECTORS = "embedding"
GROUP = 2**14  # rows that are written at a time, as a row group
FACTS = b"clip_geometry"  # key in the file's metadata of what a table cannot hold


class Facts(BaseModel):
    """What an export writes there."""

    modality: Literal["image", "text"] | None = None
    language: str | None = None
    pair_on: Literal["item_id", "label"] = "item_id"
    provenance: dict[str, Any] = {}


def columns_of(table) -> dict[str, np.ndarray]:
    """Return the columns as NumPy arrays: numbers as they are, everything else as objects."""
    import pyarrow as pa

    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_nested(column.type):
            values = np.empty(len(column), dtype=object)
            values[:] = column.to_pylist()
            columns[name] = values
        else:
            columns[name] = column.to_numpy()
    return columns


def read_parquet(path: Path) -> dict[str, Embeddings]:
    """Read one vector column, or one per modality; item_id and label are recognized, other columns kept."""
    import pyarrow.types as types

    table = read_table(path)
    lists = [
        field
        for field in table.schema
        if types.is_list(field.type) or types.is_large_list(field.type) or types.is_fixed_size_list(field.type)
    ]
    vector_columns = [field.name for field in lists if types.is_floating(field.type.value_type)]
    if not vector_columns:
        raise InputError(
            f"{shown(path)} has no vector column: none of {listed(table.column_names)} is a list of "
            "floating point numbers"
        )
    facts = parse_json((table.schema.metadata or {}).get(FACTS, b"{}"), f"the metadata of {shown(path)}", Facts)
    if facts.modality is not None and len(vector_columns) == 1:
        found = {facts.modality: vector_columns[0]}
    else:
        found = sides_by_name(vector_columns, path, "vector columns")
    columns = columns_of(table.drop_columns(vector_columns))
    item_id = columns.pop("item_id", None)
    label = next((name for name in LABEL_NAMES if name in columns), None)
    labels = None if label is None else columns.pop(label)
    sides = {}
    for modality, name in found.items():
        vectors = _vectors(table.column(name), f"{shown(path)}, column {shown(name)},")
        sides[modality] = Embeddings(
            vectors,
            modality,
            item_id=item_id,
            labels=labels,
            language=facts.language,
            pair_on=facts.pair_on,
            metadata=columns,
            provenance={**facts.provenance, "source": str(path), "dtype": str(vectors.dtype)},
        )
    return sides


def _vectors(column, source: str) -> np.ndarray:
    """Return the lists of a column as one (n, d) array."""
    import pyarrow.compute as pc

    if column.null_count:
        raise InputError(f"{source} has no vector in {column.null_count} of {len(column)} rows; drop those rows")
    lengths = pc.call_function("list_value_length", [column]).to_numpy()
    if len(lengths) and (lengths != lengths[0]).any():
        row = int(np.argmax(lengths != lengths[0]))
        raise InputError(f"{source} is ragged: row 0 has {lengths[0]} values and row {row} has {lengths[row]}")
    values = pc.call_function("list_flatten", [column])
    if values.null_count:
        raise InputError(f"{source} has {values.null_count} missing values inside its vectors")
    d = lengths[0] if len(lengths) else max(getattr(column.type, "list_size", 1), 1)
    return check_vectors(values.to_numpy().reshape(len(column), d), source)


def write_parquet(embeddings: Embeddings, path: Path) -> None:
    """Write a table with the vectors in the column "embedding", beside item_id, label and the rest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"item_id": embeddings.item_id, "label": embeddings.labels, **embeddings.metadata}
    arrays = {name: pa.array(column) for name, column in columns.items() if column is not None}
    facts = {name: getattr(embeddings, name) for name in ("modality", "language", "pair_on")}
    facts["provenance"] = dict(embeddings.provenance)

    def group(start: int) -> pa.Table:
        vectors = np.ascontiguousarray(embeddings.vectors[start : start + GROUP])
        part = {name: array[start : start + GROUP] for name, array in arrays.items()}
        part[VECTORS] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), embeddings.dim)
        return pa.table(part).replace_schema_metadata({FACTS: json.dumps(facts, default=str)})

    # vectors hardly repeat and need no dictionary
    with writing(path) as file, pq.ParquetWriter(file, group(0).schema, use_dictionary=list(arrays)) as writer:  # pyright: ignore
        for start in range(0, len(embeddings), GROUP):
            writer.write_table(group(start))
