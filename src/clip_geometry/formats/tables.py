"""Tables of embeddings, .parquet, .arrow, .feather and .h5ad: vectors, and everything else as metadata of the rows."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel

from clip_geometry.embeddings import Embeddings
from clip_geometry.files import writing
from clip_geometry.formats.vectors import GROUP, LABEL_NAMES, UNNAMED, check_vectors, sides_by_name
from clip_geometry.modalities import modality_name
from clip_geometry.paths import existing_file
from clip_geometry.reading import damaged, parse_json, read_arrow_table, read_table, require_memory
from clip_geometry.registry import InputError, listed, shown

if TYPE_CHECKING:
    import pyarrow as pa

VECTORS = "embedding"
FACTS = b"clip_geometry"  # key in the file's metadata of what a table cannot hold


class Facts(BaseModel):
    """What an export writes there."""

    modality: Annotated[str, AfterValidator(modality_name)] | None = None
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


def arrow_column(values: np.ndarray) -> "pa.Array":
    """Return a column for a table; values of several kinds, which Arrow refuses, become text."""
    import pyarrow as pa

    try:
        return pa.array(values if values.ndim == 1 else list(values))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([None if value is None else str(value) for value in values.tolist()], pa.string())


def read_parquet(path: Path) -> dict[str, Embeddings]:
    """Read one vector column, with the modality of each row beside it or not, or one column per modality; item_id and
    label are recognized, other columns kept."""
    return _sides_of_table(read_table(path), path)


def is_export(path: Path) -> bool:
    """Whether a .parquet file is one that `write_parquet` wrote."""
    import pyarrow.parquet as pq

    try:
        return FACTS in (pq.read_schema(path).metadata or {})
    except (OSError, ValueError):  # another table beside the rows, whatever it is
        return False


def read_arrow(path: Path) -> dict[str, Embeddings]:
    """Read what `read_parquet` does from Arrow's IPC format, a file (.feather, .arrow) or a stream."""
    return _sides_of_table(read_arrow_table(path), path)


def read_h5ad(path: Path) -> dict[str, Embeddings]:
    """Read the matrix X of an AnnData file, or the only one of obsm, with the columns of obs; its index is item_id."""
    try:
        import h5py
    except ImportError:
        raise InputError(
            f'{shown(path)} needs h5py, which is not installed: pip install "clip-geometry[formats]"'
        ) from None
    path = existing_file(path, "a file of embeddings")
    try:
        with h5py.File(path) as opened:
            file: Any = opened  # pyright does not know which entries are groups
            matrices = {"X": file["X"]} if "X" in file else {f"obsm/{name}": x for name, x in file["obsm"].items()}
            dense = {name: x for name, x in matrices.items() if isinstance(x, h5py.Dataset) and x.ndim == 2}
            if len(dense) != 1:
                raise InputError(
                    f"{shown(path)} has {listed(matrices)}; expected rows in X, or one dense matrix in obsm"
                )
            ((name, x),) = dense.items()
            require_memory(x.size * x.dtype.itemsize, shown(path))
            vectors, obs = check_vectors(x[:], f"{shown(path)}, matrix {name},"), file["obs"]
            index = obs.attrs["_index"]
            columns = {column: _of_obs(obs[column]) for column in (*obs.attrs["column-order"], index)}
    except (OSError, KeyError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise error if isinstance(error, InputError) else damaged(path, ".h5ad", error) from None
    own = columns.pop(index)
    return _sides({UNNAMED: vectors}, {"item_id": own, **columns}, Facts(), path)


def _of_obs(column: Any) -> np.ndarray:
    """Return a column of obs, whose categories are codes and what they stand for, −1 for none."""
    if "categories" in column:
        values = np.array([*_of_obs(column["categories"]), None], dtype=object)
        return values[column["codes"][:]]
    values = column["values"][:] if "values" in column else column[:]  # a nullable column has a mask beside
    return np.array([each.decode() for each in values], dtype=object) if values.dtype.kind in "SO" else values


def _sides_of_table(table: "pa.Table", path: Path) -> dict[str, Embeddings]:
    import pyarrow.types as types

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
    vectors = {
        modality: _vectors(table.column(name), f"{shown(path)}, column {shown(name)},")
        for modality, name in found.items()
    }
    return _sides(vectors, columns_of(table.drop_columns(vector_columns)), facts, path)


def _sides(
    vectors: Mapping[str, np.ndarray], columns: dict[str, np.ndarray], facts: Facts, path: Path
) -> dict[str, Embeddings]:
    """Return the sides of a table: those of its vector columns, or of the values of its column `modality`."""
    of_row = columns.pop("modality", None) if set(vectors) == {UNNAMED} else None
    item_id = columns.pop("item_id", None)
    label = next((name for name in LABEL_NAMES if name in columns), None)
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
    return {name: replace(rows.take(np.flatnonzero(of_row == name)), modality=name) for name in names}


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
    arrays = {name: arrow_column(column) for name, column in columns.items() if column is not None}
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
