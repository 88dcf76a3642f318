"""The items of a shard through an encoder, batch by batch, and into the files of a store."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clip_geometry.data.base import Dataset, Side
from clip_geometry.embedding.store import Shard, Store
from clip_geometry.embedding.supply import Supply, Throughput, supply
from clip_geometry.encoders.base import Encoder, EncoderConfig
from clip_geometry.memory import is_out_of_memory
from clip_geometry.progress import Advance, note
from clip_geometry.registry import InputError, shown

Record = dict[str, Any]  # of a finished shard


@dataclass
class ShardRows:
    """The rows of a batch or a shard, the items they belong to, and the items that were skipped."""

    vectors: list[np.ndarray] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    further: list[Mapping[str, np.ndarray]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    truncated: int = 0
    lost: int = 0

    def extend(self, batch: "ShardRows") -> None:
        for each in fields(self):  # lists grow, counts add up
            total = getattr(self, each.name)
            total += getattr(batch, each.name)
            setattr(self, each.name, total)

    def sort(self) -> None:
        """Sorts by item; the rows of one item keep their order."""
        order = np.argsort(np.array(self.index, dtype=np.int64), kind="stable")
        self.skipped.sort(key=lambda item: item["index"])
        if not len(order):
            return
        self.vectors = [np.concatenate(self.vectors)[order]]
        self.index = [self.index[k] for k in order]
        self.text = [self.text[k] for k in order] if self.text else []
        if self.further:
            whole = {name: np.concatenate([each[name] for each in self.further]) for name in self.further[0]}
            self.further = [{name: column[order] for name, column in whole.items()}]

    def columns(self, side: Side) -> dict[str, Any]:
        """The metadata of the rows."""
        columns: dict[str, Any] = {"item_id": [str(side.item_id[k]) for k in self.index]}
        columns["index"] = self.index
        if side.labels is not None:
            columns["label"] = np.asarray(side.labels)[self.index]
        if not self.further:
            return columns | ({"text": self.text} if side.modality == "text" else {})
        columns |= {name: np.concatenate([each[name] for each in self.further]) for name in self.further[0]}
        if side.modality == "text":
            words, counts = columns.get("word", columns["token"]), side.word_counts
            frequency = [counts.get(word, 0) for word in words]
            # special tokens are no words, whatever they look like
            columns |= {"sentence": self.index, "frequency": np.where(columns["position"] < 0, 0, frequency)}
        return columns

    def facts(self) -> dict[str, Any]:
        """For the shard's record. batch_sizes: [size, number of consecutive batches], …; lost: words without a row,
        where words have rows."""
        runs = [[size, len(list(run))] for size, run in groupby(self.sizes)]
        facts = {"batch_sizes": runs, "skipped": self.skipped, "truncated": self.truncated}
        return facts | ({"lost": self.lost} if self.further else {})


def embed_shard(supply: Supply, shard: Shard, batch_size: int, advance: Advance) -> ShardRows:
    """Embeds one shard. Its bytes depend on nothing but the encoder, the data and the batch size.

    Args:
        supply: Where batches come from.
        shard: Which items.
        batch_size: Items per batch, halved for the rest of the shard whenever memory runs out.
        advance: Called with the number of items of each finished batch.

    Raises:
        InputError: Memory runs out and the batch cannot be halved, or a row is NaN or infinite.
    """
    rows, order, position, size = ShardRows(), supply.order(shard), 0, batch_size
    while position < len(order):
        indices, batch = order[position : position + size], None
        try:
            batch = _embed_batch(supply, indices)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        if batch is None:  # the exception is gone, and with it the batch's tensors, which its traceback held
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            size = _halved(len(indices), supply.encoder)
            continue
        rows.extend(batch)
        advance(len(indices))
        position += len(indices)
    if supply.sort:
        rows.sort()
    supply.spent.items += len(order)
    return rows


def _halved(size: int, encoder: Encoder) -> int:
    model = encoder.config.model
    if encoder.config.depends_on_batch:
        raise InputError(
            f"memory ran out with {size} items a batch, and the rows of {model} depend on their batch: give a smaller "
            "batch size"
        )
    if size == 1:
        raise InputError(
            f"memory ran out with a single item: {model} needs a larger device than {encoder.device}, or a lower "
            "precision"
        )
    note(f"memory ran out with {size} items a batch: trying {size // 2}")
    return size // 2


def _embed_batch(supply: Supply, indices: Sequence[int]) -> ShardRows:
    def skip(k: int, reason: str) -> None:
        rows.skipped.append({"index": k, "item_id": str(side.item_id[k]), "reason": reason})

    encoder, side, batch = supply.encoder, supply.side, supply.batch(indices)
    rows, items = ShardRows(index=batch.index), batch.index
    for k, reason in batch.failed:
        skip(k, reason)
    if not items:
        return rows
    rows.sizes.append(len(items))
    if side.modality == "image":
        with supply.spent.doing("compute"):
            given = encoder.image_rows(batch.values)
    else:
        with supply.spent.doing("decode"):
            tokens = encoder.tokenize(batch.values)
        with supply.spent.doing("compute"):
            given = encoder.text_rows(tokens)
        rows.truncated = tokens.truncated
    vectors = given.vectors.to(dtype=torch.float32, device="cpu").numpy()
    if given.item is not None:  # several rows per item, or none
        rows.index, rows.lost = [items[k] for k in given.item], given.lost
        for k in sorted(set(items) - set(rows.index)):
            skip(k, "it has no tokens")
    elif vectors.shape[:-1] != (len(items),):
        raise RuntimeError(f"{encoder.config.model} gave {vectors.shape} for {len(items)} {side.modality} items")
    elif side.modality == "text":
        rows.text = batch.values
    if rows.index:
        rows.vectors.append(vectors)
        if given.item is not None:
            rows.further.append(given.columns)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        item = shown(str(side.item_id[rows.index[int(finite.argmin())]]))
        raise InputError(
            f"{shown(encoder.config.model)} gives NaN or infinity for the {side.modality} {item}: its weights are "
            f"damaged, or {encoder.config.precision} is too narrow for them; nothing of this shard was written"
        )
    return rows


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

    def supply(self, side: Side, shards: Sequence[Shard]) -> AbstractContextManager[Supply]:
        """Opens the batches of these shards."""
        return supply(self.encoder, side, shards, self.batch_size, self.throughput)

    def compute(self, given: Supply, shard: Shard, advance: Advance) -> Callable[[], Record]:
        """Computes the rows of a shard; returns a function that writes them and gives the record."""
        rows = embed_shard(given, shard, self.batch_size, advance)
        facts = {**rows.facts(), "device": str(self.encoder.device)}
        # what made it fast, where the rows may show it
        facts |= {"sorted": True} if given.sort else {}
        facts |= {"compile": True} if self.throughput.compile else {}
        vectors = np.concatenate(rows.vectors) if rows.vectors else np.zeros((0, 0), np.float32)
        store = Store(self.folder)
        return partial(store.write_shard, given.side.modality, shard, vectors, rows.columns(given.side), facts)
