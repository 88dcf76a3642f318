"""Batches for the embed loop: read when they are asked for, or ahead by worker processes (torch's DataLoader).

Also the options that make this fast, and where the time went.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Thread, current_thread, main_thread
from typing import Any

import torch
from pydantic import Field
from torch.utils.data import DataLoader

from clip_geometry.config import Config
from clip_geometry.data.base import Side
from clip_geometry.embedding.images import ImageReader, ReadBatch, shared_batches
from clip_geometry.embedding.store import Shard
from clip_geometry.encoders.base import Encoder
from clip_geometry.registry import InputError

# A forked worker needs nothing pickled, and a script no `if __name__ == "__main__"`; elsewhere forking is unsafe.
START = "fork" if sys.platform == "linux" else "spawn"
MAX_WORKERS = 16
FEW = 512  # images that are read sooner than processes start
PARTS = ("decode", "transfer", "compute", "write")
AHEAD = 2  # batches that each worker has begun or finished; torch's default


class Throughput(Config):
    """Options that make embedding fast. None changes what a row means. On a CPU, the defaults give the plain loop's
    bits, except for sort_texts: the last bits of a row depend on the padding of its batch.

    Attributes:
        workers: Processes that decode images. Default: 0 for few images, else the number of cores less one, at most 16.
        compile: Run the towers through torch.compile, which takes about a minute before it saves time.
        sort_texts: Batch texts of similar length where the tower pads a batch to its longest text. Texts are sorted
            within a shard, and rows are stored in the order of the data set.
    """

    workers: int | None = Field(default=None, ge=0)
    compile: bool = False
    sort_texts: bool = True

    def sorts(self, encoder: Encoder, side: Side) -> bool:
        """Whether texts are sorted; never where a row depends on its batch, which sorting changes."""
        padded = side.modality == "text" and encoder.pads_to_longest
        return self.sort_texts and padded and not encoder.config.depends_on_batch


class Spent:
    """Seconds spent on one side of a data set, by part: decode (and tokenize), transfer, compute, write.

    Attributes:
        waited: Seconds of the main process, which does one thing at a time, so that the parts add up to the whole.
            What a GPU computes is waited for where its rows are fetched.
        worked: Seconds of whoever did the work: all worker processes and threads together.
        items: Number of items embedded.
    """

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.waited: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.worked: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.items = 0

    @contextmanager
    def doing(self, part: str, *, waited: bool = True, worked: bool = True) -> Iterator[None]:
        """Time a part of the work: what the main process waits for, what someone works on, or both, which is what the
        main process does itself. Only one thread of this process works on each part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.waited[part] += seconds * waited
            self.worked[part] += seconds * worked

    def facts(self) -> dict[str, Any]:
        """Items, seconds of the side, and the seconds waited and worked of each part."""
        parts = {part: {"waited": round(self.waited[part], 4), "worked": round(self.worked[part], 4)} for part in PARTS}
        return {"items": self.items, "seconds": round(time.perf_counter() - self.begin, 4), **parts}


def throughput_line(modality: str, facts: dict[str, Any]) -> str:
    """`image: 512 items in 4.0 s (128/s): decode 3%, transfer 0%, compute 95%, write 1% of the time; …`."""
    seconds = max(facts["seconds"], 1e-9)
    waited = ", ".join(f"{part} {facts[part]['waited'] / seconds:.0%}" for part in PARTS)
    beside = [part for part in PARTS if facts[part]["worked"] - facts[part]["waited"] > 0.01 * seconds]
    hidden = ", ".join(f"{part} {facts[part]['worked']:.1f} s" for part in beside)
    rate = f"{facts['items']} items in {facts['seconds']:.1f} s ({facts['items'] / seconds:.0f}/s)"
    return f"{modality}: {rate}: {waited} of the time" + (f"; overlapped: {hidden}" if hidden else "")


@dataclass(frozen=True)
class Inputs:
    """A batch as the encoder takes it.

    Attributes:
        index: Items of the batch that could be read.
        values: Their pixels, stacked, or a list of texts.
        failed: Item and reason of each one that could not be read.
    """

    index: list[int]
    values: Any
    failed: list[tuple[int, str]]


class Supply:
    """The batches of one side of a data set.

    Batches in `planned` come from worker processes, in that order. Any other batch, such as a smaller one after memory
    ran out, is read here when it is asked for.
    """

    def __init__(self, encoder: Encoder, side: Side, *, sort: bool = False):
        self.side, self.device, self.sort, self.lengths = side, encoder.device, sort, encoder.text_lengths
        self.spent = Spent()
        pixels = encoder.pixels
        self.reader = ImageReader(side.load, None if pixels or encoder.takes_images else encoder.preprocess, pixels)
        self.planned: deque[range] = deque()
        self.coming: Iterator[ReadBatch | None] = iter(())

    def order(self, shard: Shard) -> Sequence[int]:
        """The items of a shard in the order in which they are embedded: if sorted, the longest texts first, so that
        memory runs out in the first batch or not at all."""
        items = range(shard.start, shard.stop)
        if not self.sort:
            return items
        with self.spent.doing("decode"):
            lengths = self.lengths([str(self.side.load(k)) for k in items])
        return sorted(items, key=lambda k: -lengths[k - shard.start])

    def batch(self, indices: Sequence[int]) -> Inputs:
        if self.side.modality == "text":
            with self.spent.doing("decode"):
                return Inputs(list(indices), [self.side.load(k) for k in indices], [])
        with self.spent.doing("decode", worked=False):
            read = None
            while self.planned and self.planned[0].start <= indices[0]:
                planned, coming = self.planned.popleft(), next(self.coming)
                read = coming if planned == indices else None
            read = read or self.reader(indices)
            self.spent.worked["decode"] += read.seconds
        if read.pixels is None:
            return Inputs(read.index, None, read.failed)
        with self.spent.doing("transfer"):
            pixels = read.on(self.device)
        with self.spent.doing("decode"):
            return Inputs(read.index, self.reader.finish(pixels, read.form), read.failed)


@contextmanager
def supply(
    encoder: Encoder, side: Side, shards: Sequence[Shard], batch_size: int, how: Throughput
) -> Iterator[tuple[Supply, dict[str, Any]]]:
    """Opens the supply of the shards' batches; also gives the facts about it for the manifest."""
    if side.modality == "text":
        sort = how.sorts(encoder, side)
        yield Supply(encoder, side, sort=sort), {"sorted": sort}
        return
    given = Supply(encoder, side)
    images = sum(shard.stop - shard.start for shard in shards)
    workers = default_workers(images) if how.workers is None else how.workers
    workers = workers if can_be_sent(given.reader) else 0
    facts = {"workers": workers}
    if not workers:
        yield given, facts
        return
    planned = [
        range(start, min(start + batch_size, shard.stop))
        for shard in shards
        for start in range(shard.start, shard.stop, batch_size)
    ]
    with reading_ahead(given.reader, planned, workers, pin_memory=encoder.device.type == "cuda") as coming:
        given.planned, given.coming = deque(planned), coming
        yield given, facts


def default_workers(images: int) -> int:
    """0 for few images and in a process that may have no children; else the number of cores less one, at most 16."""
    if images < FEW or multiprocessing.current_process().daemon:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores - 1, MAX_WORKERS)


def can_be_sent(reader: ImageReader, start: str = START) -> bool:
    """Whether a worker can be given the reader: a forked one has it, any other has to unpickle it."""
    if start == "fork":
        return True
    if reader.preprocess is not None:  # it would bring its model along
        return False
    try:
        pickle.dumps(reader)
    except Exception:  # pickle raises PicklingError, AttributeError, TypeError, …
        return False
    return True


@contextmanager
def reading_ahead(
    reader: ImageReader, batches: Sequence[range], workers: int, *, pin_memory: bool = False, start: str = START
) -> Iterator[Iterator[ReadBatch | None]]:
    """Reads the batches in worker processes, which end with the block.

    Yields:
        An iterator over the batches, in order, each valid until the next; None for one that a worker could not read.

    Raises:
        InputError: A worker was killed.
    """
    items: Any = range(max((batch.stop for batch in batches), default=0))
    sampler: Any = batches
    coming: Any = None
    stack = ExitStack()
    read: Any = reader
    if start == "fork" and batches:
        with suppress(OSError):  # no memory to share: through pipes, then
            read = stack.enter_context(shared_batches(reader, batches, AHEAD * workers))
    try:
        with _delayed_interrupt(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)  # more than cores, as asked
            loader = DataLoader(
                items,
                batch_sampler=sampler,
                collate_fn=read.read_or_none,
                num_workers=workers,
                prefetch_factor=AHEAD,
                pin_memory=pin_memory,
                worker_init_fn=_begin_worker,
                multiprocessing_context=start,
                generator=torch.Generator(),  # otherwise a number is drawn from the user's
            )
            coming = iter(loader)  # forks now, before any thread of ours runs
        yield coming
    except RuntimeError as error:  # torch raises it wherever the main process is when a worker dies
        if not str(error).startswith("DataLoader worker"):
            raise
        raise InputError(
            "a worker process that decodes images was killed, perhaps for lack of memory: run the same command again "
            "to continue, with fewer workers (workers=0 for none) if it happens again"
        ) from None
    finally:
        if coming is not None:
            coming._shutdown_workers()  # now, not when the last traceback that holds the iterator is gone
        stack.close()


@contextmanager
def _delayed_interrupt() -> Iterator[None]:
    """Ctrl-C is raised when the block ends: what Python does around a fork would swallow it."""
    if current_thread() is not main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _begin_worker(number: int) -> None:
    """Leaves Ctrl-C to the main process, and ends with it. A worker that outlived it would hold the store's lock;
    torch's own check comes every 5 s, and a full pipe holds it up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
