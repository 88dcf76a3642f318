"""Arrow's IPC format, a file or a stream: .arrow, .feather and the files of Hugging Face datasets, memory-mapped."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clip_geometry.embeddings import joined
from clip_geometry.io.format import Sides
from clip_geometry.io.parquet import plain_columns, rows_of_lists, sides_of_table, vector_columns
from clip_geometry.io.reading import decoded_size, reading_with, require_memory
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, listed, shown

if TYPE_CHECKING:
    import pyarrow as pa


def read(path: Path) -> Sides:
    """Read what `parquet.read` does; rows that are not compressed are memory-mapped."""
    return sides_of_files([path], path)


def sides_of_files(paths: Sequence[Path], path: Path, *, ids: bool = False, plain: bool = False) -> Sides:
    """Return the sides of files with the same columns; plain: leave nested and binary columns out, such as images."""
    import pyarrow as pa

    files = [_mapped_batches(each) for each in paths]
    batches = [batch for _, of_file in files for batch in of_file]
    schema = batches[0].schema
    if len(set(schema.names)) < len(schema):
        raise InputError(f"{shown(path)} has two columns of one name; keep one")
    with reading_with(path, "Arrow"):
        table = pa.Table.from_batches(batches)
    found = vector_columns(schema, path)
    others = plain_columns(schema, path) if plain else [name for name in schema.names if name not in found]
    beside = table.select(others)
    require_memory(decoded_size(beside), f"{shown(path)}, columns {listed(others)},")
    vectors = {}
    for name in found:
        source = f"{shown(path)}, column {shown(name)},"
        parts = [_rows(mapped, batch.column(name), source) for mapped, of_file in files for batch in of_file]
        parts = [part for part in parts if len(part)] or parts[:1]
        if widths := {part.shape[1] for part in parts} - {parts[0].shape[1]}:
            raise InputError(f"{source} is ragged: it has rows of {parts[0].shape[1]} and of {min(widths)} values")
        vectors[name] = joined(parts)
    return sides_of_table(vectors, beside, path, ids=ids)


def _mapped_batches(path: Path) -> "tuple[np.ndarray, list[pa.RecordBatch]]":
    """Return the bytes of a file, and its batches, which lie in them unless they are compressed."""
    import pyarrow as pa

    mapped = np.memmap(existing_file(path, "a file of embeddings"), np.uint8, "r")
    with reading_with(path, path.suffix):
        source = pa.py_buffer(mapped)
        is_file = mapped[:6].tobytes() == b"ARROW1"
        before = pa.total_allocated_bytes()
        with (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source) as reader:
            batches = []
            for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
                batch.validate(full=True)
                batches.append(batch)
                require_memory(pa.total_allocated_bytes() - before, shown(path))
            return mapped, batches or [pa.RecordBatch.from_pylist([], reader.schema)]


def _rows(mapped: np.ndarray, column: "pa.Array", source: str) -> np.ndarray:
    """Return the vectors of a batch, as a part of the memory map if they lie in it."""
    rows = rows_of_lists(column, source)
    start = rows.ctypes.data - mapped.ctypes.data
    if not 0 <= start <= len(mapped) - rows.nbytes or not rows.size:
        return rows
    return mapped[start : start + rows.nbytes].view(rows.dtype).reshape(rows.shape)
