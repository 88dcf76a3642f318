"""FAISS: a flat inner-product index of all rows, and a table that says what row k is."""

import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from clip_geometry.files import writing
from clip_geometry.formats.writers.base import Sets, blocks, common, item_table, writers
from clip_geometry.progress import note
from clip_geometry.registry import InputError, library, shown

UNIT = 1e-3  # by which the length of a row of unit length may be off: float16 rounds to 5e-4


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

    write_flat_index(place / "index.faiss", rows(), n, d)
    pq.write_table(item_table(sets), place / "items.parquet")
    if dtype == np.float64:
        note("FAISS holds float32: float64 rows are rounded")
    if lengths[0] < 1 - UNIT or lengths[1] > 1 + UNIT:
        note(
            f"rows have lengths from {lengths[0]:.3g} to {lengths[1]:.3g}, so the index ranks by inner product and "
            "not by cosine; normalize makes them unit length"
        )
    said = ", ".join(f"{name} {len(side)}" for name, side in sets.items())
    return {
        "index.faiss": f"{n} × {d} rows, float32, inner product: {said}",
        "items.parquet": "modality, item_id and columns of each row",
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


writers.add("faiss", write)
