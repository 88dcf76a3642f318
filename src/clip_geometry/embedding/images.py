"""Batches of images: decoded and resized by Pillow, in this process or in a worker.

Forked workers write pixels where their parent reads them; a pipe would copy each batch four times.
"""

import math
import mmap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from clip_geometry.data.base import NOT_THERE
from clip_geometry.encoders.pixels import Pixels

Form = Literal["ready", "cut", "images"]


@dataclass(frozen=True)
class ReadBatch:
    """Images that were read.

    Attributes:
        index: Items of the rows of `pixels`.
        pixels: (n, 3, h, w), None if no image could be read. A numpy array, because torch would send tensors through
            /dev/shm, of which a container may have only 64 MB; a tensor once it is pinned. An array that a worker
            wrote is valid until the next batch is asked for.
        form: "ready" for the encoder (float32); "cut", bytes, still to be normalized; "images", a list of PIL images.
        failed: Item and reason of each image that could not be read.
        seconds: Time spent reading.
    """

    index: list[int]
    pixels: np.ndarray | Tensor | list[Image.Image] | None
    form: Form
    failed: list[tuple[int, str]]
    seconds: float

    def pin_memory(self) -> "ReadBatch":
        """Called by DataLoader's pinning thread."""
        if self.pixels is None or isinstance(self.pixels, list):
            return self
        return replace(self, pixels=torch.as_tensor(self.pixels).pin_memory())

    def on(self, device: torch.device) -> Any:
        """The pixels on a GPU; for any other device, in main memory."""
        if isinstance(self.pixels, list):
            return self.pixels
        pixels = torch.as_tensor(self.pixels)
        if device.type == "cuda":
            return pixels.to(device)
        # "ready" rows enter the products as they are, whose order of summation depends on the alignment of the memory
        return pixels.clone() if self.form == "ready" else pixels


@dataclass(frozen=True)
class ImageReader:
    """Reads batches of images. It is sent to worker processes, so it holds no model where `pixels` are given.

    Attributes:
        load: Opens the image of an item.
        preprocess: The encoder's preprocessing; None if `pixels` are given, and for an encoder of PIL images.
        pixels: The two halves of the preprocessing, where the encoder has them.
    """

    load: Callable[[int], object]
    preprocess: Callable[[Image.Image], Tensor] | None
    pixels: Pixels | None = None

    def __call__(self, indices: Sequence[int], out: np.ndarray | None = None) -> ReadBatch:
        """out: where stacked pixels are written if they have its shape and dtype; the result is then its first rows."""
        start = time.perf_counter()
        index, failed = [], []
        parts: list[Any] = []
        form: Form = "cut" if self.pixels is not None else "images" if self.preprocess is None else "ready"
        for k in indices:
            try:
                image = self.load(k)
                assert isinstance(image, Image.Image)
                cut = self.preprocess if self.pixels is None else self.pixels.cut
                parts.append(image if cut is None else cut(image))
                index.append(k)
            except OSError as error:
                if error.errno not in (None, *NOT_THERE):  # None: a decoder's
                    raise
                failed.append((k, " ".join(f"{type(error).__name__}: {error}".split())[:200]))
        place = None if out is None else torch.from_numpy(out[: len(parts)])
        if place is not None and any((part.shape, part.dtype) != (place.shape[1:], place.dtype) for part in parts):
            place = None
        pixels = None if not parts else parts if form == "images" else torch.stack(parts, out=place).numpy()
        return ReadBatch(index, pixels, form, failed, time.perf_counter() - start)

    def read_or_none(self, indices: Sequence[int], out: np.ndarray | None = None) -> ReadBatch | None:
        """In a worker: None where reading fails. The main process reads that batch again, so that the error is raised
        there, as itself."""
        try:
            return self(indices, out)
        except Exception:
            return None

    def finish(self, pixels: Any, form: Form) -> Any:
        """What the encoder takes, on the device where the pixels are."""
        if form != "cut":
            return pixels
        assert self.pixels is not None
        return self.pixels.normalize(pixels)


# -- pixels in memory that workers share

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
