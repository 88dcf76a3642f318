"""FAISS indexes that store the rows themselves (flat, or HNSW over flat), with a table that describes each row."""

import functools
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import FileRows, LazyRows, Reader, chosen_rows
from clip_geometry.files import writing
from clip_geometry.io.export import blocks, item_table
from clip_geometry.io.reading import damaged, read_table, reading_with
from clip_geometry.io.sides import UNNAMED, Sides, sides_of_columns, stored_rows
from clip_geometry.io.sources import Sets
from clip_geometry.io.tables import columns_of
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, library, listed, shown

INDEX, ITEMS = "index.faiss", "items.parquet"  # files in a folder; row k of the table describes the vector with id k


def recognizes(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (INDEX, ITEMS))


def read(path: Path) -> Sides:
    """Read the rows of an index, or of a folder that also has items.parquet, whose row k describes row k of the index.

    If the index has its own ids (IndexIDMap), rows are in the order of these ids, which become item_id.
    """
    vectors, columns = _rows(path / INDEX if path.is_dir() else path)
    if not path.is_dir():
        return sides_of_columns({UNNAMED: vectors}, columns, path)
    columns = columns_of(read_table(path / ITEMS))
    if "modality" not in columns or any(len(values) != len(vectors) for values in columns.values()):
        raise InputError(f"{shown(path)} has {len(vectors)} rows in {INDEX}, but fewer in {ITEMS}")
    return sides_of_columns({UNNAMED: vectors}, columns, path)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open an index; its rows are memory-mapped while it is open."""
    faiss = library("faiss", "faiss-cpu", shown(path))
    size = existing_file(path, "a FAISS index").stat().st_size
    if not hasattr(faiss, "get_deserialization_vector_byte_limit"):
        raise InputError(f"{shown(path)} needs faiss-cpu 1.14.2 or later, and {faiss.__version__} is installed")
    # FAISS allocates the sizes that a file declares, so none may be larger than the file
    byte_limit = faiss.get_deserialization_vector_byte_limit()
    loop_limit = faiss.get_deserialization_loop_limit()
    faiss.set_deserialization_vector_byte_limit(size)
    faiss.set_deserialization_loop_limit(size)
    try:
        with reading_with(path, "FAISS"):
            yield faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    finally:
        faiss.set_deserialization_vector_byte_limit(byte_limit)
        faiss.set_deserialization_loop_limit(loop_limit)


def _rows(path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the rows of an index in the order of their ids, and the ids if the index has its own."""
    with _opened(path) as index:
        import faiss

        shape = _flat(index, path).ntotal, index.d
        rows = stored_rows(FileRows(functools.partial(_reader, path), shape, np.dtype(np.float32)), shown(path))
        if not isinstance(index, faiss.IndexIDMap):
            return rows, {}
        ids = faiss.vector_to_array(index.id_map)
    order = np.argsort(ids, kind="stable")
    if (np.diff(ids) < 0).any():
        rows = chosen_rows(rows, order) if isinstance(rows, LazyRows) else rows[order]
    return rows, {"item_id": ids[order]}


def _flat(index: Any, path: Path) -> Any:
    """Return the flat index that stores the rows of an index."""
    import faiss

    inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap) else index
    flat = faiss.downcast_index(inner.storage) if isinstance(inner, faiss.IndexHNSWFlat) else inner
    if not isinstance(flat, faiss.IndexFlat):
        raise InputError(
            f"{shown(path)} is a FAISS {type(flat).__name__}; expected a flat index or HNSW on one: give the rows that "
            "it was built from, which an IVF-flat index returns by its make_direct_map() and reconstruct_n()"
        )
    if not flat.codes.size() == 4 * flat.ntotal * flat.d == 4 * index.ntotal * flat.d:
        raise damaged(path, "FAISS", f"{flat.codes.size()} bytes for {index.ntotal} rows")
    return flat


@contextmanager
def _reader(path: Path) -> Iterator[Reader]:
    """Open an index and yield a function that reads rows from start to stop."""
    import faiss

    with _opened(path) as index:
        flat = _flat(index, path)
        rows = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(flat.ntotal, flat.d)
        yield lambda start, stop: rows[start:stop].copy()  # the memory map ends when the index is closed


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write index.faiss, an IndexFlatIP in float32, and items.parquet, whose row k describes the vector with id k."""
    import pyarrow.parquet as pq

    widths = {name: side.dim for name, side in sets.items()}
    if len(set(widths.values())) > 1:
        counts = listed(f"{name} {d}" for name, d in widths.items())
        raise InputError(f"the modalities have different numbers of columns ({counts}); export them one by one")
    n = sum(map(len, sets.values()))
    d = max(widths.values())
    write_flat_index(place / INDEX, (block for side in sets.values() for block in blocks(side)), n, d)
    pq.write_table(item_table(sets), place / ITEMS)
    return {
        INDEX: f"{n} × {d} rows, float32; ranks by inner product, which is the cosine if rows are normalized",
        ITEMS: "modality, item_id and other columns of each row",
    }


def write_flat_index(path: Path, rows: Iterable[np.ndarray], n: int, d: int) -> None:
    """Write an IndexFlatIP of n rows in blocks; FAISS itself would hold all rows in memory.

    The file consists of a header, which contains n twice, and the rows. The header is that of an empty index, written
    by FAISS. The layout is first checked against an index of one row.
    """
    faiss = library("faiss", "faiss-cpu", "a FAISS index")
    one_row = faiss.IndexFlatIP(d)
    one_row.add(np.ones((1, d), np.float32))
    empty_header = faiss.serialize_index(faiss.IndexFlatIP(d)).tobytes()

    def header(count: int) -> bytes:
        return empty_header[:8] + struct.pack("<q", count) + empty_header[16:-8] + struct.pack("<q", count * d)

    expected = header(1) + np.ones(d, "<f4").tobytes()
    if header(0) != empty_header or expected != faiss.serialize_index(one_row).tobytes():
        raise InputError(
            f"faiss {faiss.__version__} writes flat indexes in another layout; expected the layout of version 1.9"
        )
    with writing(path) as file:
        file.write(header(n))
        for block in rows:
            file.write(np.ascontiguousarray(block, "<f4").tobytes())
