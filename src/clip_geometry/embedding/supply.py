"""Batches for the embed loop, read on demand or ahead of time by worker processes (torch's DataLoader).

Forked workers write pixels to memory shared with their parent; a pipe would copy each batch four times.
"""

import math
import mmap
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Thread, current_thread, main_thread
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor
from torch.utils.data import DataLoader

from clip_geometry.config import Config
from clip_geometry.data.base import NOT_THERE, Side
from clip_geometry.embedding.store import Shard
from clip_geometry.encoders.base import Encoder, Pixels
from clip_geometry.registry import InputError

# With forked workers, nothing is pickled and scripts need no `if __name__ == "__main__"`. Elsewhere forking is unsafe.
FORKS = sys.platform == "linux"
MAX_WORKERS = 16
FEW = 512  # images up to which reading takes less time than starting processes
PARTS = ("decode", "transfer", "compute", "write")
AHEAD = 2  # batches per worker in progress or waiting; torch's default


class Throughput(Config):
    """Options that speed up embedding without changing the meaning of the rows.

    On a CPU, the defaults give the same bits as a plain loop, except for sort_texts: the last bits of a row depend on
    the padding of its batch.

    Attributes:
        workers: Number of processes that decode images. Default: 0 for few images, else the number of cores minus one,
            at most 16. Always 0 on systems other than Linux.
        sort_texts: Batch texts of similar length together if the tower pads a batch to its longest text. Texts are
            sorted within a shard; rows are stored in the order of the data set.
    """

    workers: int | None = Field(default=None, ge=0)
    sort_texts: bool = True


# --- images


@dataclass(frozen=True)
class Batch:
    """A batch of items after reading.

    Attributes:
        index: The items that could be read.
        values: Texts, PIL images, or pixels (n, 3, h, w); None if no image could be read. Pixels are a NumPy array,
            because torch would send tensors through /dev/shm, which may be only 64 MB in a container, and become a
            tensor when they are pinned. An array written by a worker is valid until the next batch is requested.
        failed: (item, reason) for each image that could not be read.
    """

    index: list[int]
    values: Any
    failed: list[tuple[int, str]] = field(default_factory=list)

    def pin_memory(self) -> "Batch":
        """Pin the pixels; called by DataLoader's pinning thread."""
        if not isinstance(self.values, np.ndarray):
            return self
        return replace(self, values=torch.from_numpy(self.values).pin_memory())


@dataclass(frozen=True)
class ImageReader:
    """A reader of batches of images.

    Attributes:
        load: Function that opens the image of an item.
        preprocess: The encoder's preprocessing; None if `pixels` is given or the encoder takes PIL images.
        pixels: The preprocessing in two halves, if the encoder has them: bytes are read, and normalized later.
    """

    load: Callable[[int], object]
    preprocess: Callable[[Image.Image], Tensor] | None
    pixels: Pixels | None = None

    def __call__(self, indices: Sequence[int], out: np.ndarray | None = None) -> Batch:
        """Read the images with these indices.

        Stacked pixels are written to `out` if they have its shape and dtype; the result is then its first rows.
        """
        prepare = self.preprocess if self.pixels is None else self.pixels.cut
        index = []
        failed = []
        images: list[Any] = []  # PIL images or tensors of pixels
        for k in indices:
            try:
                image = self.load(k)
                assert isinstance(image, Image.Image)
                images.append(image if prepare is None else prepare(image))
                index.append(k)
            except OSError as error:
                if error.errno not in (None, *NOT_THERE):  # None: an error of the decoder
                    raise
                failed.append((k, " ".join(f"{type(error).__name__}: {error}".split())[:200]))
        if prepare is None or not images:
            return Batch(index, images or None, failed)
        target = None if out is None else torch.from_numpy(out[: len(images)])
        if target is not None and any((one.shape, one.dtype) != (target.shape[1:], target.dtype) for one in images):
            target = None
        return Batch(index, torch.stack(images, out=target).numpy(), failed)

    def read_or_none(self, indices: Sequence[int], out: np.ndarray | None = None) -> Batch | None:
        """Read a batch in a worker; return None if this fails.

        The main process then reads the batch again, so that the original error is raised there.
        """
        try:
            return self(indices, out)
        except Exception:
            return None

    def on(self, device: torch.device, pixels: Any) -> Tensor:
        """Move pixels to a GPU; for any other device, keep them in main memory."""
        pixels = torch.as_tensor(pixels)
        if device.type == "cuda":
            return pixels.to(device)
        # clone input that goes directly into matrix products, whose order of summation depends on memory alignment
        return pixels.clone() if self.pixels is None else pixels

    def layout(self, batch: range) -> tuple[tuple[int, ...], Any] | None:
        """Return the shape and dtype of an image's pixels; None if they are unknown.

        If the encoder has no `pixels`, they are those of the first image in the batch that can be read.
        """
        if self.pixels is not None:
            return (3, *self.pixels.size), np.uint8
        if self.preprocess is None:
            return None
        for k in batch:
            single = self.read_or_none([k])
            if single is None:  # the error is raised when the batch is requested
                return None
            if isinstance(single.values, np.ndarray) and single.values.size:
                return single.values.shape[1:], single.values.dtype
        return None


# --- the batches of one side of a data set


class Supply:
    """The batches of one side of a data set, ready for the encoder, with timings of the work.

    Worker processes read the batches in `planned`, in that order. Any other batch, such as a smaller one after memory
    ran out, is read on demand in this process.

    The main process does one thing at a time, so the seconds of the parts (decode and tokenize, transfer, compute,
    write) add up to the total. Concurrent work of worker processes, the writer thread and a GPU counts only while the
    main process waits for it, as part of the step that waits.
    """

    def __init__(self, encoder: Encoder, side: Side, *, sort: bool = False):
        self.encoder = encoder
        self.side = side
        self.sort = sort
        needs_preprocess = not (encoder.pixels or encoder.takes_images)
        self.reader = ImageReader(side.load, encoder.preprocess if needs_preprocess else None, encoder.pixels)
        self.workers = 0
        self.planned: deque[range] = deque()
        self.read_ahead: Iterator[Batch | None] = iter(())  # the batches in `planned`, read by the workers
        self.begin = time.perf_counter()
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.items = 0  # number of embedded items

    @contextmanager
    def doing(self, part: str) -> Iterator[None]:
        """Time a part of the work."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - start

    def facts(self) -> dict[str, Any]:
        """Return facts for the manifest: how batches are read, the number of items, seconds in total and per part."""
        how = {"sorted": self.sort} if self.side.modality == "text" else {"workers": self.workers}
        parts = {part: round(seconds, 4) for part, seconds in self.seconds.items()}
        return {**how, "items": self.items, "seconds": round(time.perf_counter() - self.begin, 4), **parts}

    def order(self, shard: Shard) -> Sequence[int]:
        """Return the items of a shard in the order in which they are embedded.

        If sorted, the longest texts come first, so that memory runs out in the first batch or not at all.
        """
        items = range(shard.start, shard.stop)
        if not self.sort:
            return items
        with self.doing("decode"):
            lengths = self.encoder.text_lengths([str(self.side.load(k)) for k in items])
        return sorted(items, key=lambda k: -lengths[k - shard.start])

    def batch(self, indices: Sequence[int]) -> Batch:
        with self.doing("decode"):
            batch = self._read(indices)
        if batch.values is None or isinstance(batch.values, list):
            return batch
        with self.doing("transfer"):
            pixels = self.reader.on(self.encoder.device, batch.values)
        if self.reader.pixels is not None:
            with self.doing("decode"):
                pixels = self.reader.pixels.normalize(pixels)
        return replace(batch, values=pixels)

    def _read(self, indices: Sequence[int]) -> Batch:
        """Return the batch from the workers that read ahead, or read it here if the sizes of batches have changed."""
        if self.side.modality == "text":
            return Batch(list(indices), [self.side.load(k) for k in indices])
        batch = None
        while self.planned and self.planned[0].start <= indices[0]:
            planned = self.planned.popleft()
            planned_batch = next(self.read_ahead)
            batch = planned_batch if planned == indices else None
        return batch or self.reader(indices)


def throughput_line(modality: str, facts: dict[str, Any]) -> str:
    """Return `image: 512 items in 4.0 s (128/s): decode 3%, transfer 0%, compute 95%, write 1% of the time`."""
    seconds = max(facts["seconds"], 1e-9)
    shares = ", ".join(f"{part} {facts[part] / seconds:.0%}" for part in PARTS)
    rate = f"{facts['items']} items in {facts['seconds']:.1f} s ({facts['items'] / seconds:.0f}/s)"
    return f"{modality}: {rate}: {shares} of the time"


@contextmanager
def supply(encoder: Encoder, side: Side, shards: Sequence[Shard], batch_size: int, how: Throughput) -> Iterator[Supply]:
    """Open the supply of batches for the shards.

    Texts are not sorted if rows depend on their batch, since sorting changes the batches.
    """
    is_text = side.modality == "text"
    sort = is_text and how.sort_texts and encoder.pads_to_longest and not encoder.config.depends_on_batch
    batches = Supply(encoder, side, sort=sort)
    if FORKS and not is_text:
        images = sum(shard.stop - shard.start for shard in shards)
        batches.workers = default_workers(images) if how.workers is None else how.workers
    if not batches.workers:
        yield batches
        return
    for shard in shards:
        starts = range(shard.start, shard.stop, batch_size)
        batches.planned.extend(range(start, min(start + batch_size, shard.stop)) for start in starts)
    planned = list(batches.planned)
    pin_memory = encoder.device.type == "cuda"
    with reading_ahead(batches.reader, planned, batches.workers, pin_memory=pin_memory) as batches.read_ahead:
        yield batches


def default_workers(images: int) -> int:
    """Return the default number of workers: the number of cores minus one, at most 16.

    It is 0 for few images, on systems other than Linux, and in a daemon process, which may not have children.
    """
    if not FORKS or images < FEW or multiprocessing.current_process().daemon:
        return 0
    return min(len(os.sched_getaffinity(0)) - 1, MAX_WORKERS)


# --- worker processes

_memories: dict[int, np.ndarray] = {}  # pixels in memory shared with the workers


class _SharedRows(NamedTuple):
    """A reference to the first rows of a slot, which becomes an array when it is unpickled."""

    memory: int
    slot: int
    length: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _view, tuple(self)


def _view(memory: int, slot: int, length: int) -> np.ndarray:
    return _memories[memory][slot, :length]


@contextmanager
def _shared_batches(
    reader: ImageReader, batches: Sequence[range], ahead: int
) -> Iterator[Callable[[Sequence[int]], Batch | None]]:
    """Allocate slots of shared memory before the workers start, and release them at the end.

    The memory is anonymous and does not use /dev/shm, which may be only 64 MB in a container. A slot is reused
    `ahead` + 1 batches later; no worker begins that batch before the parent requests the batch after the current one.

    Yields:
        A function for the workers that reads a batch into its slot. It reads like `reader.read_or_none` instead if the
        batch does not fit, if the size of its pixels is unknown (for PIL images, or if no image can be read), or if
        there is no memory to share.
    """
    layout = reader.layout(batches[0])
    if layout is None:
        yield reader.read_or_none
        return
    count = min(len(batches), ahead + 1)
    shape = (count, max(map(len, batches)), *layout[0])
    dtype = np.dtype(layout[1])
    try:
        memory = np.frombuffer(mmap.mmap(-1, math.prod(shape) * dtype.itemsize), dtype).reshape(shape)
    except OSError:
        yield reader.read_or_none
        return
    key = id(memory)
    slots = {batch.start: k % count for k, batch in enumerate(batches)}
    _memories[key] = memory
    del memory  # a stored traceback may keep this frame alive

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


@contextmanager
def reading_ahead(
    reader: ImageReader, batches: Sequence[range], workers: int, *, pin_memory: bool = False
) -> Iterator[Iterator[Batch | None]]:
    """Read the batches in worker processes, which end with the block.

    Yields:
        An iterator over the batches, in order. A batch is valid until the next one is requested; it is None if a worker
        could not read it.

    Raises:
        InputError: A worker was killed.
    """
    items: Any = range(max(batch.stop for batch in batches))
    sampler: Any = batches
    iterator: Any = None
    with _shared_batches(reader, batches, AHEAD * workers) as read:
        try:
            with _delayed_interrupt(), warnings.catch_warnings():
                # the user may ask for more workers than there are cores
                warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
                loader = DataLoader(
                    items,
                    batch_sampler=sampler,
                    collate_fn=read,
                    num_workers=workers,
                    prefetch_factor=AHEAD,
                    pin_memory=pin_memory,
                    worker_init_fn=_begin_worker,
                    multiprocessing_context="fork",
                    generator=torch.Generator(),  # otherwise it draws from the global generator
                )
                iterator = iter(loader)  # forks now, before any of our threads start
            yield iterator
        except RuntimeError as error:  # raised by torch at any point when a worker dies
            if not str(error).startswith("DataLoader worker"):
                raise
            raise InputError(
                "a worker process that decodes images was killed, perhaps for lack of memory: run the same command "
                "again to continue, with fewer workers (workers=0 for none) if it happens again"
            ) from None
        finally:
            if iterator is not None:
                iterator._shutdown_workers()  # now, since a traceback may keep the iterator alive


@contextmanager
def _delayed_interrupt() -> Iterator[None]:
    """Delay Ctrl-C until the block ends, because Python's fork hooks would swallow it."""
    if current_thread() is not main_thread():
        yield
        return
    interrupts: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if interrupts:
            signal.raise_signal(signal.SIGINT)


def _begin_worker(number: int) -> None:
    """Make a worker ignore Ctrl-C, which the main process handles, and exit when the main process ends.

    A worker that outlives the main process would hold the store's lock. torch checks this only every 5 s, and a full
    pipe delays its check.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
