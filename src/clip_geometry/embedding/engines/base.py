"""What an engine does: it computes shards of a store, and passes over rows."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from clip_geometry.data.base import Dataset, Side
from clip_geometry.embedding.shards.rows import embed_shard
from clip_geometry.embedding.shards.supply import Supply, supply
from clip_geometry.embedding.shards.throughput import Resize, Throughput, choose_resize
from clip_geometry.embedding.store import Shard, Store
from clip_geometry.encoders.base import Encoder, EncoderConfig
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.progress import Advance

Record = dict[str, Any]
Shown = AbstractContextManager[Advance]


@dataclass(frozen=True)
class ShardMaker:
    """Computes and writes shards of a store, wherever it is: it travels by pickling, its encoder does not.

    load: makes the encoder of a config on a device.
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
        """Built when first asked for: a complete store needs none."""
        encoder = self.load(self.config, device=self.device)
        if self.throughput.compile:
            encoder.compile()
        return encoder

    @cached_property
    def _resize(self) -> dict[str, Resize]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("encoder", "_resize")}

    def resize(self, side: Side) -> Resize:
        if side.modality not in self._resize:
            self._resize[side.modality] = choose_resize(self.throughput, self.encoder, side, self.batch_size)
        return self._resize[side.modality]

    def compute(
        self, side: Side, shard: Shard, given: Supply, resize: Resize, advance: Advance
    ) -> Callable[[], Record]:
        """What writes the rows of the shard, which are computed, and gives the record."""
        rows = embed_shard(self.encoder, side, shard, self.batch_size, advance, given)
        shown = {**rows.facts(), "device": str(self.encoder.device), **self._visible(given, resize)}
        vectors = np.concatenate(rows.vectors) if rows.vectors else np.zeros((0, 0), np.float32)
        return partial(Store(self.folder).write_shard, side.modality, shard, vectors, rows.columns(side), shown)

    def make(self, modality: str, shard: Shard) -> Record:
        """The record of one shard, once its files are written."""
        side = next(side for side in self.dataset.sides if side.modality == modality)
        resize = self.resize(side)
        with supply(self.encoder, side, [shard], self.batch_size, self.throughput, resize) as (given, _):
            return self.compute(side, shard, given, resize, lambda done: None)()

    def _visible(self, given: Supply, resize: Resize) -> Record:
        """What a shard's rows can show of how they were made fast; nothing where they are as the plain loop's."""
        shown = {"resize": "device"} if resize.raw else {}
        shown |= {"sorted": True} if given.sort else {}
        return shown | ({"compile": True} if self.throughput.compile else {})


class Engine(Protocol):
    """name: that in `engines`. spent: how each side's shards were computed, and how long it took; for the manifest."""

    name: str
    spent: dict[str, Any]

    def shards(
        self, maker: ShardMaker, side: Side, shards: Sequence[Shard], shown: Shown
    ) -> Generator[Record, None, None]:
        """The records of missing shards, in any order, each when its files are written. shown: entered when the work
        begins, and told how many items are done."""
        ...

    def stream(self, rows: StreamedRows) -> StreamedRows:
        """The same rows; the engine makes those passes over them that are aggregations."""
        ...
