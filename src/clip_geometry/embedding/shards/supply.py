"""What the embed loop is given, batch by batch: read when it is asked for, or ahead."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from clip_geometry.data.base import Side
from clip_geometry.embedding.shards.images import ImageReader, ReadBatch
from clip_geometry.embedding.shards.staging import Staged, staging
from clip_geometry.embedding.shards.throughput import Resize, Throughput
from clip_geometry.embedding.shards.timing import Spent
from clip_geometry.embedding.shards.workers import can_be_sent, default_workers, in_order, reading_ahead
from clip_geometry.embedding.store import Shard
from clip_geometry.encoders.base import Encoder


@dataclass(frozen=True)
class Inputs:
    """The items `index` as the encoder takes them: stacked pixels or a list of texts; those that failed, and why."""

    index: list[int]
    values: Any
    failed: list[tuple[int, str]]


class Supply:
    """The plain one: items are read in this process, when they are asked for."""

    def __init__(self, encoder: Encoder, side: Side, spent: Spent | None = None, *, sort: bool = False):
        self.encoder, self.side = encoder, side
        self.spent = Spent() if spent is None else spent
        self.sort = sort
        self.reader = ImageReader(side.load, encoder.preprocess)

    def order(self, shard: Shard) -> Sequence[int]:
        """The items of a shard in the order they are embedded; sorted: the longest texts first."""
        items = range(shard.start, shard.stop)
        return sorted(items, key=lambda k: -len(str(self.side.load(k)))) if self.sort else items

    def batch(self, indices: Sequence[int]) -> Inputs:
        with self.spent.doing("decode"):
            if self.side.modality == "text":
                return Inputs(list(indices), [self.side.load(k) for k in indices], [])
            return self._inputs(self.reader(indices))

    def _inputs(self, batch: ReadBatch) -> Inputs:
        pixels = None if batch.pixels is None else torch.from_numpy(batch.pixels)
        return Inputs(batch.index, pixels, batch.failed)


class Ahead(Supply):
    """Images that are read ahead, in the order of `planned`; any other batch is read when it is asked for, as after
    memory ran out and batches became smaller."""

    def __init__(self, encoder: Encoder, side: Side, spent: Spent, reader: ImageReader, stage: Callable[..., Staged]):
        super().__init__(encoder, side, spent)
        self.reader, self.stage = reader, stage
        self.planned: deque[range] = deque()
        self.coming: Iterator[Staged | None] = iter(())

    def batch(self, indices: Sequence[int]) -> Inputs:
        with self.spent.waiting("decode"):
            while self.planned and self.planned[0].start < indices[0]:
                self._next()
            found = self._next() if self.planned and self.planned[0] == indices else None
            staged = found or self.stage(self.reader(indices))
        with self.spent.waiting("transfer"):
            pixels = staged.arrived()
        batch = staged.batch
        self.spent.worked["decode"] += batch.seconds
        self.spent.worked["transfer"] += staged.seconds
        if pixels is None:
            return Inputs(batch.index, None, batch.failed)
        with self.spent.doing("decode"):
            return Inputs(batch.index, self.reader.finish(pixels, batch.form), batch.failed)

    def _next(self) -> Staged | None:
        self.planned.popleft()
        return next(self.coming)


@contextmanager
def supply(
    encoder: Encoder, side: Side, shards: Sequence[Shard], batch_size: int, how: Throughput, resize: Resize
) -> Iterator[tuple[Supply, dict[str, Any]]]:
    """What the shards' batches come from, and the facts of that for the manifest."""
    spent = Spent()
    if side.modality == "text":
        sort = how.sorts(encoder, side)
        yield Supply(encoder, side, spent, sort=sort), {"sorted": sort}
        return
    images = sum(shard.stop - shard.start for shard in shards)
    workers = default_workers(images) if how.workers is None else how.workers
    gpu = encoder.device.type == "cuda"
    facts = {"workers": workers, **resize.facts()}
    if not (workers or gpu or resize.raw):
        yield Supply(encoder, side, spent), facts
        return
    pixels = encoder.pixels
    reader = ImageReader(side.load, None if pixels else encoder.preprocess, pixels, resize.raw)
    if not can_be_sent(reader):
        workers = facts["workers"] = 0
    planned = [batch for shard in shards for batch in _batches(shard, batch_size)]
    with ExitStack() as stack:
        read = stack.enter_context(reading_ahead(reader, planned, workers)) if workers else map(reader, planned)
        ahead = Ahead(encoder, side, spent, reader, staging(encoder.device))
        ahead.planned, ahead.coming = deque(planned), _staged(stack, read, ahead.stage, len(planned), thread=gpu)
        yield ahead, facts


def _batches(shard: Shard, size: int) -> list[range]:
    return [range(start, min(start + size, shard.stop)) for start in range(shard.start, shard.stop, size)]


def _staged(
    stack: ExitStack, read: Iterator[ReadBatch | None], stage: Callable[..., Staged], count: int, *, thread: bool
) -> Iterator[Staged | None]:
    """On a GPU a thread has two batches there before they are needed. None: the main process shall try it."""

    def one(_: int) -> Staged | None:
        try:
            batch = next(read)
            return None if batch is None else stage(batch)
        except Exception:
            return None

    if not thread:
        return map(one, range(count))
    pool = ThreadPoolExecutor(1, "to-device")
    stack.callback(pool.shutdown, cancel_futures=True)
    return in_order(lambda k: pool.submit(one, k), range(count), 2)
