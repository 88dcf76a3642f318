""".parquet: the column whose type is a list of floats holds the vectors, the others belong to the rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.files import parquet_bytes, write_atomically
from clip_geometry.formats.vectors import LABEL_NAMES, check_vectors, damaged, sides_by_name
from clip_geometry.registry import InputError

VECTORS = "embedding"
FACTS = b"clip_geometry"  # key of the file's own metadata, where an export says what a table cannot


def read_table(path: Path):
    """A pyarrow table; a damaged file is one sentence."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return file.read()
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, ".parquet", error) from None


def columns_of(table) -> dict[str, np.ndarray]:
    """The columns as numpy arrays: numbers as they are, everything else as objects."""
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
    """One vector column, or one for each modality; columns item_id and label are recognised, others kept."""
    table = read_table(path)
    vector_columns = [field.name for field in table.schema if _is_vector(field.type)]
    if not vector_columns:
        raise InputError(
            f"{path} has no vector column: none of {', '.join(table.column_names)} is a list of floating point numbers"
        )
    facts = json.loads((table.schema.metadata or {}).get(FACTS, b"{}"))
    if "modality" in facts and len(vector_columns) == 1:
        found = {facts["modality"]: vector_columns[0]}
    else:
        found = sides_by_name(vector_columns, path, "vector columns")
    others = columns_of(table.drop_columns(vector_columns))
    return {
        modality: _embeddings(_vectors(table.column(name), path, name), dict(others), modality, path, facts)
        for modality, name in found.items()
    }


def _embeddings(
    vectors: np.ndarray, columns: dict[str, np.ndarray], modality: str, path: Path, facts: dict[str, Any]
) -> Embeddings:
    item_id = columns.pop("item_id", None)
    label = next((name for name in LABEL_NAMES if name in columns), None)
    return Embeddings(
        vectors,
        modality,
        item_id=None if item_id is None else np.array([str(item) for item in item_id], dtype=object),
        labels=None if label is None else columns.pop(label),
        language=facts.get("language"),
        pair_on=facts.get("pair_on", "item_id"),
        metadata=columns,
        provenance={**facts.get("provenance", {}), "source": str(path), "dtype": str(vectors.dtype)},
    )


def _is_vector(kind) -> bool:
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and pa.types.is_floating(kind.value_type)


def _vectors(column, path: Path, name: str) -> np.ndarray:
    """The lists of a column as one (n, d) array."""
    import pyarrow.compute as pc

    source = f"{path}, column {name!r},"
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
    """A table with the vectors in the column "embedding", beside item_id, label and the rest."""
    import pyarrow as pa

    columns = {"item_id": embeddings.item_id, "label": embeddings.labels, **embeddings.metadata}
    arrays = {name: pa.array(column) for name, column in columns.items() if column is not None}
    flat = pa.array(np.ascontiguousarray(embeddings.vectors).reshape(-1))
    arrays[VECTORS] = pa.FixedSizeListArray.from_arrays(flat, embeddings.dim)
    facts = {name: getattr(embeddings, name) for name in ("modality", "language", "pair_on")}
    facts["provenance"] = dict(embeddings.provenance)
    table = pa.table(arrays).replace_schema_metadata({FACTS: json.dumps(facts, default=str)})
    write_atomically(path, parquet_bytes(table))
