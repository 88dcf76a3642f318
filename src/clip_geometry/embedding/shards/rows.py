"""The items of a shard through an encoder, batch by batch: their rows, and what happened to those without one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch

from clip_geometry.data.base import Side
from clip_geometry.embedding.shards.supply import Inputs, Supply
from clip_geometry.embedding.store import Shard
from clip_geometry.encoders.base import Encoder, Rows
from clip_geometry.memory import is_out_of_memory
from clip_geometry.progress import Advance, note
from clip_geometry.registry import InputError, shown


@dataclass
class ShardRows:
    """What a batch or a shard gave: rows, where they come from, what was skipped."""

    vectors: list[np.ndarray] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    further: list[Mapping[str, np.ndarray]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    truncated: int = 0
    lost: int = 0

    def extend(self, batch: "ShardRows") -> None:
        self.vectors += batch.vectors
        self.index += batch.index
        self.text += batch.text
        self.further += batch.further
        self.sizes += batch.sizes
        self.skipped += batch.skipped
        self.truncated += batch.truncated
        self.lost += batch.lost

    def sort(self) -> None:
        """Into the order of the data set; the rows of an item stay as they are."""
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
        """batch_sizes: [size, how many in a row], …; lost: words without a row, where words have rows."""
        runs = [[size, len(list(run))] for size, run in groupby(self.sizes)]
        facts = {"batch_sizes": runs, "skipped": self.skipped, "truncated": self.truncated}
        return facts | ({"lost": self.lost} if self.further else {})


def embed_shard(
    encoder: Encoder, side: Side, shard: Shard, batch_size: int, advance: Advance, supply: Supply | None = None
) -> ShardRows:
    """The rows of one shard, whose bytes depend on nothing but the arguments. supply: default: the plain one."""
    supply = supply or Supply(encoder, side)
    rows, order, position, size = ShardRows(), supply.order(shard), 0, batch_size
    while position < len(order):
        indices = order[position : position + size]
        batch = _try_batch(encoder, side, indices, supply)
        if batch is None:
            size = _halved(encoder, len(indices))
            continue
        rows.extend(batch)
        advance(len(indices))
        position += len(indices)
    if not isinstance(order, range):
        rows.sort()
    supply.spent.items += len(order)
    return rows


def _try_batch(encoder: Encoder, side: Side, indices: Sequence[int], supply: Supply) -> ShardRows | None:
    """None if memory ran out. Returning lets go of the traceback, which holds the batch's tensors."""
    try:
        return _embed_batch(encoder, side, supply.batch(indices), supply)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def _halved(encoder: Encoder, size: int) -> int:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if encoder.config.depends_on_batch:
        raise InputError(
            f"memory ran out with {size} items a batch, and the rows of {encoder.config.model} depend on their "
            "batch: give a smaller batch size"
        )
    if size == 1:
        raise InputError(
            f"memory ran out with a single item: {encoder.config.model} needs a larger device than "
            f"{encoder.device}, or a lower precision"
        )
    note(f"memory ran out with {size} items a batch: trying {size // 2}")
    return size // 2


def _embed_batch(encoder: Encoder, side: Side, inputs: Inputs, supply: Supply) -> ShardRows:
    rows = ShardRows(index=inputs.index)
    rows.skipped = [{"index": k, "item_id": str(side.item_id[k]), "reason": why} for k, why in inputs.failed]
    if not inputs.index:
        return rows
    if side.modality == "image":
        with supply.spent.doing("compute"):
            given = encoder.image_rows(inputs.values)
    else:
        with supply.spent.doing("decode"):
            tokens = encoder.tokenize(inputs.values)
        with supply.spent.doing("compute"):
            given = encoder.text_rows(tokens)
        rows.truncated = tokens.truncated
    rows.sizes.append(len(inputs.index))
    several = given.item is not None
    rows = _several(rows, side, given) if several else _one_each(rows, side, given, inputs.values, encoder)
    _require_finite(rows, side, encoder)
    return rows


def _require_finite(rows: ShardRows, side: Side, encoder: Encoder) -> None:
    """Before anything of the shard is written."""
    finite = np.isfinite(rows.vectors[0]).all(axis=1) if rows.vectors else np.ones(1, dtype=bool)
    if not finite.all():
        item = shown(str(side.item_id[rows.index[int(finite.argmin())]]))
        raise InputError(
            f"{shown(encoder.config.model)} gives NaN or infinity for the {side.modality} {item}: its weights are "
            f"damaged, or {encoder.config.precision} is too narrow for them; nothing of this shard was written"
        )


def _one_each(rows: ShardRows, side: Side, given: Rows, inputs: list[Any], encoder: Encoder) -> ShardRows:
    rows.vectors.append(given.vectors.to(dtype=torch.float32, device="cpu").numpy())
    if rows.vectors[0].shape[:-1] != (len(inputs),):
        raise RuntimeError(
            f"{encoder.config.model} gave {rows.vectors[0].shape} for {len(inputs)} {side.modality} items"
        )
    rows.text = inputs if side.modality == "text" else []
    return rows


def _several(rows: ShardRows, side: Side, given: Rows) -> ShardRows:
    """Several rows an item; an item with none counts as skipped."""
    assert given.item is not None
    items, rows.lost = rows.index, given.lost
    rows.index = [items[k] for k in given.item]
    for k in sorted(set(items) - set(rows.index)):
        rows.skipped.append({"index": k, "item_id": str(side.item_id[k]), "reason": "it has no tokens"})
    if len(rows.index):
        rows.vectors.append(given.vectors.numpy())
        rows.further.append(given.columns)
    return rows
