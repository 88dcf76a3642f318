"""Batches of images: decoded and resized by Pillow, in this process or in a worker.

Forked workers write pixels where their parent reads them; a pipe would copy each batch four times.
"""

import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from clip_geometry.data.base import NOT_THERE
from clip_geometry.encoders.pixels import Pixels


@dataclass(frozen=True)
class Batch:
    """Items that were read.

    Attributes:
        index: Those that could be read.
        values: Texts, PIL images, or pixels (n, 3, h, w); None if no image could be read. Pixels are a numpy array,
            because torch would send tensors through /dev/shm, of which a container may have only 64 MB, and a tensor
            once they are pinned. An array that a worker wrote is valid until the next batch is asked for.
        failed: Item and reason of each image that could not be read.
    """

    index: list[int]
    values: Any
    failed: list[tuple[int, str]] = field(default_factory=list)

    def pin_memory(self) -> "Batch":
        """Called by DataLoader's pinning thread."""
        if not isinstance(self.values, np.ndarray):
            return self
        return replace(self, values=torch.from_numpy(self.values).pin_memory())


@dataclass(frozen=True)
class ImageReader:
    """Reads batches of images.

    Attributes:
        load: Opens the image of an item.
        preprocess: The encoder's preprocessing; None if `pixels` are given, and for an encoder of PIL images.
        pixels: The two halves of the preprocessing, where the encoder has them: bytes are read, and normalized later.
    """

    load: Callable[[int], object]
    preprocess: Callable[[Image.Image], Tensor] | None
    pixels: Pixels | None = None

    def __call__(self, indices: Sequence[int], out: np.ndarray | None = None) -> Batch:
        """out: where stacked pixels are written if they have its shape and dtype; the result is then its first rows."""
        prepare = self.preprocess if self.pixels is None else self.pixels.cut
        index, failed = [], []
        parts: list[Any] = []
        for k in indices:
            try:
                image = self.load(k)
                assert isinstance(image, Image.Image)
                parts.append(image if prepare is None else prepare(image))
                index.append(k)
            except OSError as error:
                if error.errno not in (None, *NOT_THERE):  # None: a decoder's
                    raise
                failed.append((k, " ".join(f"{type(error).__name__}: {error}".split())[:200]))
        if prepare is None or not parts:
            return Batch(index, parts or None, failed)
        place = None if out is None else torch.from_numpy(out[: len(parts)])
        if place is not None and any((part.shape, part.dtype) != (place.shape[1:], place.dtype) for part in parts):
            place = None
        return Batch(index, torch.stack(parts, out=place).numpy(), failed)

    def read_or_none(self, indices: Sequence[int], out: np.ndarray | None = None) -> Batch | None:
        """In a worker: None where reading fails. The main process reads that batch again, so that the error is raised
        there, as itself."""
        try:
            return self(indices, out)
        except Exception:
            return None

    def on(self, device: torch.device, pixels: Any) -> Tensor:
        """The pixels on a GPU; for any other device, in main memory."""
        pixels = torch.as_tensor(pixels)
        if device.type == "cuda":
            return pixels.to(device)
        # rows for the encoder enter the products as they are, whose order of summation depends on their alignment
        return pixels.clone() if self.pixels is None else pixels


# -- pixels in memory that workers share

_memories: dict[int, np.ndarray] = {}


class _SharedRows(NamedTuple):
    """The first rows of a slot; unpickled, they are an array."""

    memory: int
    slot: int
    length: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _view, tuple(self)


def _view(memory: int, slot: int, length: int) -> np.ndarray:
    return _memories[memory][slot, :length]


@contextmanager
def shared_batches(
    reader: ImageReader, batches: Sequence[range], ahead: int
) -> Iterator[Callable[[Sequence[int]], Batch | None]]:
    """Makes slots of memory before the workers begin, and forgets them.

    The memory is anonymous: it is not taken from /dev/shm, of which a container may have only 64 MB. A slot is written
    again `ahead` + 1 batches later, which no worker begins before the parent asks for the batch after this one.

    Args:
        reader: Reads a batch.
        batches: All that are read.
        ahead: Number of batches begun before the first of them is asked for.

    Yields:
        A function for the workers that reads a batch into its slot, or as `reader.read_or_none` where it does not fit,
        its pixels have no known size (images, or none that can be read), or there is no memory to share.
    """
    count = min(len(batches), ahead + 1)
    try:
        image, dtype = _layout(reader, batches)
        shape = (count, max(map(len, batches)), *image)
        memory = np.frombuffer(mmap.mmap(-1, math.prod(shape) * np.dtype(dtype).itemsize), dtype).reshape(shape)
    except (OSError, LookupError):
        yield reader.read_or_none
        return
    key, slots = id(memory), {batch.start: k % count for k, batch in enumerate(batches)}
    _memories[key] = memory
    del memory  # a traceback that is kept may hold this frame

    def read(indices: Sequence[int]) -> Batch | None:
        slot = slots[indices[0]]
        batch = reader.read_or_none(indices, _memories[key][slot])
        if batch is None or not isinstance(batch.values, np.ndarray):
            return batch
        fits = np.may_share_memory(batch.values, _memories[key])
        return replace(batch, values=_SharedRows(key, slot, len(batch.index))) if fits else batch

    try:
        yield read
    finally:
        del _memories[key]


def _layout(reader: ImageReader, batches: Sequence[range]) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of the pixels of an image: those of the first that can be read, where the reader does not say.

    Raises LookupError if they have no known size.
    """
    if reader.pixels is not None and batches:
        return (3, *reader.pixels.size), np.uint8
    for k in batches[0] if batches and reader.preprocess is not None else ():
        read = reader.read_or_none([k])
        if read is None:  # the error is raised where the batch is asked for
            break
        if isinstance(read.values, np.ndarray) and read.values.size:
            return read.values.shape[1:], read.values.dtype
    raise LookupError("pixels of no known size")
