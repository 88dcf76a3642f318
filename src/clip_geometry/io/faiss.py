"""FAISS: indexes that keep the rows themselves (flat, IVF-flat, HNSW-flat), and a table that says what row k is."""

import functools
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import LazyRows, Reader, chosen_rows
from clip_geometry.files import writing
from clip_geometry.io.format import Sets, Sides
from clip_geometry.io.parquet import columns_of
from clip_geometry.io.reading import damaged, read_table, reading_with, require_memory
from clip_geometry.io.sides import UNNAMED, Stored, sides_of_columns
from clip_geometry.io.writing import blocks, common, item_table
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.registry import InputError, library, shown

INDEX, ITEMS = "index.faiss", "items.parquet"  # of a folder: row k of the table is the vector with the id k
UNIT = 1e-3  # by which the length of a row of unit length may be off: float16 rounds to 5e-4


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open an index, and the index inside where a program has given it ids (IndexIDMap). The rows of flat ones are
    memory-mapped as long as it is open; FAISS loads the lists of an IVF index."""
    faiss = library("faiss", "faiss-cpu", shown(path))
    size = existing_file(path, "a FAISS index").stat().st_size
    # FAISS allocates what a file declares, so nothing may be declared larger than the file
    limits = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
    faiss.set_deserialization_vector_byte_limit(size)
    faiss.set_deserialization_loop_limit(size)
    try:
        with reading_with(path, "FAISS"):
            try:
                outer = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_SKIP_IVF_DATA)
            except RuntimeError:  # it has lists, or is damaged
                require_memory(2 * size, shown(path))  # the index and a copy of its rows
                outer = faiss.read_index(str(path), faiss.IO_FLAG_READ_ONLY)
            yield outer, faiss.downcast_index(outer.index) if isinstance(outer, faiss.IndexIDMap) else outer
    finally:
        faiss.set_deserialization_vector_byte_limit(limits[0])
        faiss.set_deserialization_loop_limit(limits[1])


def _rows(path: Path) -> tuple[Any, np.ndarray | None]:
    """Return the rows of an index in the order of their ids, and the ids where they are not 0, 1, 2, …."""
    with _opened(path) as (outer, index):
        import faiss

        if isinstance(index, faiss.IndexIVFFlat):
            rows, ids = _rows_of_lists(index, path)
        else:
            shape = _flat(index, path).ntotal, index.d
            rows = Stored(shape, np.dtype(np.float32), functools.partial(_opened_rows, path)).rows(shown(path))
            ids = np.arange(len(rows))
        if outer is not index:
            ids = faiss.vector_to_array(outer.id_map)[ids]
        if not len(rows) == len(ids) == outer.ntotal:
            raise damaged(path, "FAISS", f"{len(rows)} rows of {outer.ntotal}")
    order = np.argsort(ids, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        rows = chosen_rows(rows, order) if isinstance(rows, LazyRows) else rows[order]
    numbered = outer is index and np.array_equal(ids[order], np.arange(len(order)))
    return rows, None if numbered else ids[order]


def _flat(index: Any, path: Path) -> Any:
    """Return the flat index that has the rows of another."""
    import faiss

    flat = faiss.downcast_index(index.storage) if isinstance(index, faiss.IndexHNSWFlat) else index
    if not isinstance(flat, faiss.IndexFlat):
        raise InputError(
            f"{shown(path)} is a FAISS {type(index).__name__}, which does not keep the rows as they were added; "
            "give the rows that it was built from, or a flat, IVF-flat or HNSW-flat index of them"
        )
    if flat.codes.size() != 4 * flat.ntotal * flat.d:
        raise damaged(path, "FAISS", f"{flat.codes.size()} bytes for {flat.ntotal} rows")
    return flat


@contextmanager
def _opened_rows(path: Path) -> Iterator[Reader]:
    import faiss

    with _opened(path) as (_, index):
        flat = _flat(index, path)
        rows = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(flat.ntotal, flat.d)
        yield lambda start, stop: rows[start:stop].copy()  # it is gone when the index is closed


def _rows_of_lists(index: Any, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of an IVF index, list by list, and their ids."""
    import faiss
    from faiss.contrib.inspect_tools import get_invlist

    inverted = faiss.downcast_InvertedLists(index.invlists)
    if not isinstance(inverted, faiss.ArrayInvertedLists) or inverted.code_size != 4 * index.d:
        raise InputError(f"{shown(path)} keeps its rows in another file; give an index with its rows in it")
    ids, codes = zip(*(get_invlist(inverted, k) for k in range(inverted.nlist)), strict=True)
    return np.concatenate(codes).view(np.float32), np.concatenate(ids)


def read(path: Path) -> Sides:
    """Read the rows of an index, or of a folder with items.parquet, in which row k is that of the index.

    They are in the order of their ids, which become item_id where a program has given them (IndexIDMap, or
    add_with_ids of an IVF index).
    """
    vectors, ids = _rows(path / INDEX if path.is_dir() else path)
    if not path.is_dir():
        return sides_of_columns({UNNAMED: vectors}, {} if ids is None else {"item_id": ids}, path)
    columns = columns_of(read_table(path / ITEMS))
    if "modality" not in columns or any(len(values) != len(vectors) for values in columns.values()):
        raise InputError(f"{shown(path)} has {len(vectors)} rows in {INDEX} and fewer in {ITEMS}")
    return sides_of_columns({UNNAMED: vectors}, columns, path)


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write index.faiss, an IndexFlatIP in float32, and items.parquet, whose row k is the vector with the id k."""
    import pyarrow.parquet as pq

    if out.suffix.lower() in (".faiss", ".index"):
        raise InputError(
            f"{shown(out)} is called as a file, but FAISS gets a folder with index.faiss; leave the ending out"
        )
    n, d, dtype = common(sets, "a FAISS index")
    lengths = [np.inf, 0.0]  # the smallest and the largest

    def rows() -> Iterable[np.ndarray]:
        for side in sets.values():
            for block in blocks(side):
                norms = np.linalg.norm(block.astype(np.float64), axis=1)
                lengths[:] = min(lengths[0], norms.min()), max(lengths[1], norms.max())
                yield block

    write_flat_index(place / INDEX, rows(), n, d)
    pq.write_table(item_table(sets), place / ITEMS)
    if dtype == np.float64:
        note("FAISS holds float32: float64 rows are rounded")
    if lengths[0] < 1 - UNIT or lengths[1] > 1 + UNIT:
        note(
            f"rows have lengths from {lengths[0]:.3g} to {lengths[1]:.3g}, so the index ranks by inner product and "
            "not by cosine; normalize makes them unit length"
        )
    said = ", ".join(f"{name} {len(side)}" for name, side in sets.items())
    return {
        INDEX: f"{n} × {d} rows, float32, inner product: {said}",
        ITEMS: "modality, item_id and columns of each row",
    }


def write_flat_index(path: Path, rows: Iterable[np.ndarray], n: int, d: int) -> None:
    """Write an IndexFlatIP of n rows that come in blocks, which FAISS itself would hold in memory.

    Its file is a header, with n in two places, and the rows. The header is FAISS's own, of an empty index; that an
    index of one row is laid out like this is checked first.
    """
    faiss = library("faiss", "faiss-cpu", "a FAISS index")
    empty, one = faiss.IndexFlatIP(d), faiss.IndexFlatIP(d)
    one.add(np.ones((1, d), np.float32))
    header = faiss.serialize_index(empty).tobytes()

    def of(count: int) -> bytes:
        return header[:8] + struct.pack("<q", count) + header[16:-8] + struct.pack("<q", count * d)

    if of(0) != header or of(1) + np.ones(d, "<f4").tobytes() != faiss.serialize_index(one).tobytes():
        raise InputError(f"faiss {faiss.__version__} writes a flat index in a layout of its own; expected that of 1.9")
    written = 0
    with writing(path) as file:
        file.write(of(n))
        for block in rows:
            file.write(np.ascontiguousarray(block, "<f4").tobytes())
            written += len(block)
    assert written == n


def recognizes(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (INDEX, ITEMS))
