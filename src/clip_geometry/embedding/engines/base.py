"""What an engine does, and the local engine: shards and passes over rows in this process."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from clip_geometry.data.base import Dataset, Side
from clip_geometry.embedding.rows import embed_shard
from clip_geometry.embedding.store import Shard, Store
from clip_geometry.embedding.supply import Supply, supply
from clip_geometry.embedding.throughput import Throughput, throughput_line
from clip_geometry.encoders.base import Encoder, EncoderConfig
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.progress import Advance, detail

Record = dict[str, Any]
Bar = AbstractContextManager[Advance]  # of progress; called with the number of finished items


@dataclass(frozen=True)
class ShardMaker:
    """Computes and writes shards of a store on any machine. It is pickled without its encoder.

    Attributes:
        load: Builds the encoder of a config on a device.
    """

    config: EncoderConfig
    dataset: Dataset
    folder: Path
    device: str
    batch_size: int
    throughput: Throughput
    load: Callable[..., Encoder]

    @cached_property
    def encoder(self) -> Encoder:
        """Built when it is first needed; a complete store needs none."""
        encoder = self.load(self.config, device=self.device)
        if self.throughput.compile:
            encoder.compile()
        return encoder

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "encoder"}

    def compute(self, side: Side, shard: Shard, given: Supply, advance: Advance) -> Callable[[], Record]:
        """Computes the rows of a shard; returns a function that writes them and gives the record."""
        rows = embed_shard(self.encoder, side, shard, self.batch_size, advance, given)
        facts = {**rows.facts(), "device": str(self.encoder.device)}
        # what made it fast, where the rows may show it
        facts |= {"sorted": True} if given.sort else {}
        facts |= {"compile": True} if self.throughput.compile else {}
        vectors = np.concatenate(rows.vectors) if rows.vectors else np.zeros((0, 0), np.float32)
        return partial(Store(self.folder).write_shard, side.modality, shard, vectors, rows.columns(side), facts)

    def make(self, modality: str, shard: Shard) -> Record:
        """Computes and writes one shard; returns its record."""
        side = next(side for side in self.dataset.sides if side.modality == modality)
        with supply(self.encoder, side, [shard], self.batch_size, self.throughput) as (given, _):
            return self.compute(side, shard, given, lambda done: None)()


class Engine(Protocol):
    """Computes shards of a store and passes over rows.

    Attributes:
        name: Its name in `engines`.
        spent: How each side's shards were computed and how long it took, for the manifest.
    """

    name: str
    spent: dict[str, Any]

    def shards(self, maker: ShardMaker, side: Side, shards: Sequence[Shard], bar: Bar) -> Generator[Record, None, None]:
        """Yields the records of missing shards in any order, each when its files are written. bar: entered when the
        work begins; counts finished items."""
        ...

    def stream(self, rows: StreamedRows) -> StreamedRows:
        """The same rows; the engine runs the passes over them that are aggregations."""
        ...


class LocalEngine:
    """Shard after shard and block after block, in this process."""

    name = "local"

    def __init__(self) -> None:
        self.spent: dict[str, Any] = {}

    def __repr__(self) -> str:
        return "<local engine>"

    def shards(self, maker: ShardMaker, side: Side, shards: Sequence[Shard], bar: Bar) -> Generator[Record, None, None]:
        """Writes each shard in the background while the next one is computed, so that memory holds two. An error of a
        write is raised when the next shard is computed; a shard that is being written is always finished."""
        supplied = supply(maker.encoder, side, shards, maker.batch_size, maker.throughput)
        writing: list[Future[Record]] = []  # of the last shard

        def write(shard: Callable[[], Record]) -> Record:
            with given.spent.working("write"):
                return shard()

        def finished() -> list[Record]:
            with given.spent.waiting("write"):
                return [each.result() for each in writing]

        # worker processes are forked before the threads of the progress bar and of the writer begin
        with supplied as (given, facts), bar as advance, ThreadPoolExecutor(1, "write-shards") as writer:
            for shard in shards:
                computed = maker.compute(side, shard, given, advance)
                records = finished()
                writing = [writer.submit(write, computed)]
                yield from records
            records = finished()
        self.spent[side.modality] = {**facts, "compile": maker.throughput.compile, **given.spent.facts()}
        detail(throughput_line(side.modality, self.spent[side.modality]))
        yield from records

    def stream(self, rows: StreamedRows) -> StreamedRows:
        return rows


@contextmanager
def this_process(address: str | None = None) -> Iterator[Engine]:
    yield LocalEngine()
