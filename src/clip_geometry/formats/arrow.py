"""Arrow's IPC format, a file or a stream: .arrow, .feather and the files of Hugging Face datasets, memory-mapped."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clip_geometry.formats.format import Format, Sides, formats, reading_with
from clip_geometry.formats.mapped import rows_at
from clip_geometry.formats.tables import (
    COLUMNS,
    columns_of,
    plain_columns,
    sides_of_lists,
    sides_of_table,
    vector_columns,
)
from clip_geometry.formats.vectors import check_vectors
from clip_geometry.paths import existing_file
from clip_geometry.reading import decoded_size, read_arrow_table, require_memory
from clip_geometry.registry import InputError, listed, shown

if TYPE_CHECKING:
    import pyarrow as pa

    Batch = tuple[np.ndarray, pa.RecordBatch]  # and the bytes of the file, in which its values lie


class _NotMapped(InputError):
    """Vectors do not lie in the file as they are."""


def read_arrow(path: Path) -> Sides:
    """Read what `read_parquet` does; rows that are not compressed are memory-mapped."""
    try:
        return sides_of_batches(mapped_batches(path), path)
    except _NotMapped:
        return sides_of_table(read_arrow_table(path), path)


def mapped_batches(path: Path) -> "list[Batch]":
    import pyarrow as pa

    path = existing_file(path, "a file of embeddings")
    mapped = np.memmap(path, np.uint8, "r")
    with reading_with(path, path.suffix):
        source = pa.py_buffer(mapped)
        is_file = mapped[:6].tobytes() == b"ARROW1"
        with (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source) as reader:
            batches = [reader.get_batch(k) for k in range(reader.num_record_batches)] if is_file else list(reader)
            batches = batches or [pa.RecordBatch.from_pylist([], reader.schema)]
        for batch in batches:
            batch.validate(full=True)
    if len(set(batches[0].schema.names)) < len(batches[0].schema):
        raise InputError(f"{shown(path)} has two columns of one name; keep one")
    return [(mapped, batch) for batch in batches]


def sides_of_batches(batches: "list[Batch]", path: Path, *, ids: bool = False, plain: bool = False) -> Sides:
    """Return the sides of files with the same columns; plain: leave nested and binary columns out, such as images."""
    import pyarrow as pa

    schema = batches[0][1].schema
    found = vector_columns(schema, path)
    others = plain_columns(schema, path) if plain else [name for name in schema.names if name not in found]
    with reading_with(path, "Arrow"):
        table = pa.Table.from_batches([batch for _, batch in batches]).select(others)
        require_memory(decoded_size(table), f"{shown(path)}, columns {listed(others)},")
        columns = columns_of(table)
    vectors = {name: _vectors(batches, name, f"{shown(path)}, column {shown(name)},") for name in found}
    return sides_of_lists(vectors, columns, schema, path, ids=ids)


def _vectors(batches: "list[Batch]", name: str, source: str) -> Any:
    """Return the vectors of a column where they lie in the files.

    Raises:
        InputError: A vector is missing or has another length.
        _NotMapped: They are somewhere else.
    """
    first = batches[0][1].column(name)
    d, dtype = None, np.dtype(first.type.value_type.to_pandas_dtype())
    places: dict[int, tuple[np.ndarray, list[np.ndarray]]] = {}
    for mapped, batch in batches:
        column = batch.column(name)
        if column.null_count:
            raise InputError(f"{source} has no vector in {column.null_count} of {len(column)} rows; drop those rows")
        values = column.flatten()
        if values.null_count:
            raise InputError(f"{source} has {values.null_count} missing values inside its vectors")
        lengths = column.value_lengths().to_numpy()
        for length in np.unique(lengths).tolist():
            d = length if d is None else d
            if length != d:
                raise InputError(f"{source} is ragged: it has rows of {d} and of {length} values")
        start = 0
        if len(values):
            start = values.buffers()[1].address + values.offset * dtype.itemsize - mapped.ctypes.data
            if not 0 <= start <= len(mapped) - len(values) * dtype.itemsize:
                raise _NotMapped(f"{source} is compressed and cannot be mapped: save it without compression")
        places.setdefault(id(mapped), (mapped, []))[1].append(
            start + (d or 0) * dtype.itemsize * np.arange(len(column))
        )
    d = max(getattr(first.type, "list_size", 1), 1) if d is None else d
    check_vectors(np.zeros((0, d), dtype), source)
    return rows_at([(mapped, np.concatenate(offsets)) for mapped, offsets in places.values()], d, dtype)


formats.add(
    "arrow",
    Format(
        title="Arrow IPC, Feather",
        holds=COLUMNS,
        streams="memory-mapped unless compressed",
        read=read_arrow,
        suffixes=(".arrow", ".feather"),
    ),
)
