"""The engine that needs nothing: shard after shard, and block after block, in this process."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from clip_geometry.data.base import Side
from clip_geometry.embedding.engines.base import Engine, Record, ShardMaker, Shown
from clip_geometry.embedding.shards.supply import supply
from clip_geometry.embedding.shards.timing import told
from clip_geometry.embedding.shards.writing import Writer
from clip_geometry.embedding.store import Shard
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.progress import note


class ThisProcess:
    name = "local"

    def __init__(self) -> None:
        self.spent: dict[str, Any] = {}

    def shards(
        self, maker: ShardMaker, side: Side, shards: Sequence[Shard], shown: Shown
    ) -> Generator[Record, None, None]:
        """Each shard is written while the next one is computed, so that its record comes then."""
        resize, known = maker.resize(side), 0
        supplied = supply(maker.encoder, side, shards, maker.batch_size, maker.throughput, resize)
        # processes are forked before a thread begins, that of the progress or of the writer
        with supplied as (given, facts), shown as advance, Writer(given.spent) as writer:
            for shard in shards:
                writer.write(maker.compute(side, shard, given, resize, advance))
                yield from writer.records[known:]
                known = len(writer.records)
        self.spent[side.modality] = {**facts, "compile": maker.throughput.compile, **given.spent.facts()}
        note(told(side.modality, self.spent[side.modality]))
        yield from writer.records[known:]

    def stream(self, rows: StreamedRows) -> StreamedRows:
        return rows


@contextmanager
def this_process(address: str | None = None) -> Iterator[Engine]:
    yield ThisProcess()
