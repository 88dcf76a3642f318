"""Rows at known places in files: memory-mapped where they lie one after the other, and gathered where they do not."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from clip_geometry.embeddings import LazyRows, in_memory_or_lazy


def rows_at(parts: Sequence[tuple[np.ndarray, np.ndarray]], d: int, dtype: Any) -> Any:
    """Return the rows of d numbers of several files, each given by its bytes as a memory map and the first byte of
    each row: a memory map, an array, or ShardedRows if that would be large."""
    dtype, size = np.dtype(dtype), d * np.dtype(dtype).itemsize
    if len(parts) == 1 and (mapped := parts[0][0]) is not None and len(offsets := parts[0][1]):
        start = int(offsets[0])
        aligned = (mapped.ctypes.data + start) % dtype.alignment == 0 and dtype.isnative
        if aligned and (np.diff(offsets) == size).all():
            return mapped[start : start + len(offsets) * size].view(dtype).reshape(len(offsets), d)
    return in_memory_or_lazy(
        [
            LazyRows(
                functools.partial(_opened, mapped, offsets, d, dtype),
                (len(offsets), d),
                dtype.newbyteorder("="),
                part=mapped,
            )
            for mapped, offsets in parts
        ]
    )


@contextmanager
def _opened(*args: Any) -> Iterator["_Gathered"]:
    yield _Gathered(*args)


class _Gathered:
    """A slice reads the rows at its offsets, neighbors at once."""

    def __init__(self, mapped: np.ndarray, offsets: np.ndarray, d: int, dtype: np.dtype):
        self.mapped, self.offsets, self.d, self.dtype = mapped, offsets, d, dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        offsets, size = self.offsets[rows], self.d * self.dtype.itemsize
        found = np.empty((len(offsets), size), np.uint8)
        begins = [0, *(np.flatnonzero(np.diff(offsets) != size) + 1).tolist(), len(offsets)]
        for begin, end in pairwise(begins):
            if begin < end:
                start = int(offsets[begin])
                found[begin:end] = self.mapped[start : start + (end - begin) * size].reshape(-1, size)
        return found.reshape(-1).view(self.dtype).reshape(len(offsets), self.d)
