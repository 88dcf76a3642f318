"""Pixels that forked workers write where their parent reads them; a pipe would copy each batch four times."""

import math
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from clip_geometry.embedding.images import ImageReader, ReadBatch

_memories: dict[int, np.ndarray] = {}


class _Rows(NamedTuple):
    """The first rows of a slot; unpickled, they are an array."""

    memory: int
    slot: int
    length: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _view, tuple(self)


def _view(memory: int, slot: int, length: int) -> np.ndarray:
    return _memories[memory][slot, :length]


class SharedBatches:
    """Reads batches into slots of memory that was there before the workers began.

    The memory is anonymous: it is not taken from /dev/shm, of which a container may have only 64 MB. A slot is written
    again `ahead` + 1 batches later, which no worker begins before the parent asks for the batch after this one.
    """

    def __init__(self, reader: ImageReader, batches: Sequence[range], ahead: int, image: tuple[int, ...], dtype: Any):
        slots = min(len(batches), ahead + 1)
        shape = (slots, max(map(len, batches)), *image)
        buffer = mmap.mmap(-1, math.prod(shape) * np.dtype(dtype).itemsize)
        self.memory = np.frombuffer(buffer, dtype).reshape(shape)
        self.slots = {batch.start: k % slots for k, batch in enumerate(batches)}
        self.reader = reader

    def read_or_none(self, indices: Sequence[int]) -> ReadBatch | None:
        """In a worker: like the reader's, but the pixels stay in their slot if they fit into it."""
        slot = self.slots[indices[0]]
        read = self.reader.read_or_none(indices, self.memory[slot])
        if read is None or not isinstance(read.pixels, np.ndarray):
            return read
        if not np.may_share_memory(read.pixels, self.memory[slot]):
            return read
        rows: Any = _Rows(id(self), slot, len(read.index))
        return replace(read, pixels=rows)


@contextmanager
def shared_batches(reader: ImageReader, batches: Sequence[range], ahead: int) -> Iterator[Any]:
    """Makes the memory, and forgets it. ahead: number of batches begun before the first of them is asked for.

    Yields:
        `SharedBatches`, or the reader itself where its pixels have no known size: images, or none that can be read.
    """
    layout = _layout(reader, batches)
    if layout is None:
        yield reader
        return
    shared = SharedBatches(reader, batches, ahead, *layout)
    _memories[id(shared)] = shared.memory
    try:
        yield shared
    finally:
        del _memories[id(shared)], shared.memory  # a traceback that is kept may hold `shared`


def _layout(reader: ImageReader, batches: Sequence[range]) -> tuple[tuple[int, ...], Any] | None:
    """Shape and dtype of the pixels of an image: those of the first that can be read, where the reader does not say."""
    if reader.pixels is not None:
        return (3, *reader.pixels.size), np.uint8
    if reader.preprocess is None:
        return None
    for k in batches[0]:
        read = reader.read_or_none([k])
        if read is None:  # the error is raised where the batch is asked for
            return None
        if isinstance(read.pixels, np.ndarray) and read.pixels.size:
            return read.pixels.shape[1:], read.pixels.dtype
    return None
