"""Embedding of one shard, batch by batch, and its files in a store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clip_geometry.data.base import Dataset, Side
from clip_geometry.embedding.store import Shard, Store
from clip_geometry.embedding.supply import Supply, Throughput
from clip_geometry.encoders.base import Encoder, EncoderConfig
from clip_geometry.memory import is_out_of_memory
from clip_geometry.progress import Advance, note
from clip_geometry.registry import InputError, shown

Record = dict[str, Any]  # the record of a finished shard


@dataclass
class BatchRows:
    """The rows of a batch and the items that were skipped.

    Attributes:
        index: (m,) the item of each row.
        vectors: (m, d) the rows.
        columns: Metadata of each row, in addition to that of its item.
        size: Number of items in the batch.
        skipped: The skipped items.
        truncated: Number of texts that did not fit.
        lost: Number of words without a row if words have rows, else None.
    """

    index: np.ndarray
    vectors: np.ndarray
    columns: Mapping[str, Any] = field(default_factory=dict)
    size: int = 0
    skipped: list[dict[str, Any]] = field(default_factory=list)
    truncated: int = 0
    lost: int | None = None


@dataclass(frozen=True)
class ShardMaker:
    """A job that computes and writes shards of a store on any machine; it is pickled without its encoder.

    Attributes:
        load: Function that builds the encoder of a config on a device.
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
        """The encoder, built at first use, since a complete store does not need it."""
        return self.load(self.config, device=self.device)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "encoder"}

    def compute(self, supply: Supply, shard: Shard, advance: Advance) -> Callable[[], Record]:
        """Compute the rows of a shard and return a function that writes them and returns the record."""
        vectors, columns, facts = embed_shard(supply, shard, self.batch_size, advance)
        facts["device"] = str(self.encoder.device)
        if supply.sort:  # recorded only if rows may differ
            facts["sorted"] = True
        return partial(Store(self.folder).write_shard, supply.side.modality, shard, vectors, columns, facts)


def embed_shard(
    supply: Supply, shard: Shard, batch_size: int, advance: Advance
) -> tuple[np.ndarray, dict[str, Any], dict[str, Any]]:
    """Embed one shard. Its bytes depend only on the encoder, the data and the batch size.

    Args:
        supply: Source of the batches.
        shard: The items to embed.
        batch_size: Items per batch, halved for the rest of the shard whenever memory runs out.
        advance: Called with the number of items in each finished batch.

    Returns:
        (rows, their metadata by column, facts for the shard's record).

    Raises:
        InputError: Memory runs out and the batch cannot be halved, or a row is NaN or infinite.
    """
    order = supply.order(shard)
    position = 0
    size = batch_size
    batches: list[BatchRows] = []
    while position < len(order):
        indices = order[position : position + size]
        rows = None
        try:
            rows = _embed_batch(supply, indices)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        if rows is None:  # outside of `except`, where the traceback no longer holds the batch's tensors
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            size = _halved(len(indices), supply.encoder)
            continue
        batches.append(rows)
        advance(len(indices))
        position += len(indices)
    supply.items += len(order)
    return _joined(batches, supply.side, sort=supply.sort)


def _joined(
    batches: Sequence[BatchRows], side: Side, *, sort: bool
) -> tuple[np.ndarray, dict[str, Any], dict[str, Any]]:
    """Join the rows of a shard in the order of the data set; `sort` if the batches are in another order."""
    sizes = [[size, len(list(run))] for size, run in groupby(rows.size for rows in batches if rows.size)]
    skipped = sorted((item for rows in batches for item in rows.skipped), key=lambda item: item["index"])
    facts = {"batch_sizes": sizes, "skipped": skipped, "truncated": sum(rows.truncated for rows in batches)}
    non_empty = [rows for rows in batches if len(rows.index)]
    if not non_empty:
        empty: dict[str, Any] = {"item_id": [], "index": []}
        if side.labels is not None:
            empty["label"] = side.labels[:0]
        if side.modality == "text":
            empty["text"] = []
        return np.zeros((0, 0), np.float32), empty, facts
    index = np.concatenate([rows.index for rows in non_empty])
    order = np.argsort(index, kind="stable") if sort else slice(None)  # keeps the order of the rows of one item
    index = index[order]
    columns: dict[str, Any] = {"item_id": [str(side.item_id[k]) for k in index], "index": index}
    if side.labels is not None:
        columns["label"] = np.asarray(side.labels)[index]
    for name in non_empty[0].columns:
        columns[name] = np.concatenate([rows.columns[name] for rows in non_empty])[order]
    if non_empty[0].lost is not None:
        facts["lost"] = sum(rows.lost or 0 for rows in batches)
        if side.modality == "text":
            words = columns.get("word", columns["token"])
            counts = side.word_counts
            frequency = [counts.get(word, 0) for word in words]
            columns["sentence"] = index
            # special tokens do not count as words, whatever their text is
            columns["frequency"] = np.where(columns["position"] < 0, 0, frequency)
    return np.concatenate([rows.vectors for rows in non_empty])[order], columns, facts


def _halved(size: int, encoder: Encoder) -> int:
    """Return half the size of a batch that ran out of memory; raise InputError if it cannot be halved."""
    model = encoder.config.model
    problem = f"memory ran out with {size} items per batch"
    if encoder.config.depends_on_batch:
        raise InputError(f"{problem}, and the rows of {model} depend on their batch: give a smaller batch size")
    if size == 1:
        raise InputError(
            f"memory ran out with a single item: {model} needs a larger device than {encoder.device}, or a lower "
            "precision"
        )
    note(f"{problem}: trying {size // 2}")
    return size // 2


def _embed_batch(supply: Supply, indices: Sequence[int]) -> BatchRows:
    """Read and encode some items; items that cannot be read or have no rows are recorded as skipped."""
    encoder = supply.encoder
    side = supply.side
    batch = supply.batch(indices)
    failed = list(batch.failed)
    rows = BatchRows(np.array(batch.index, dtype=np.int64), np.zeros((0, 0), np.float32), size=len(batch.index))
    if rows.size:
        if side.modality == "image":
            with supply.doing("compute"):
                output = encoder.image_rows(batch.values)
        else:
            with supply.doing("decode"):
                tokens = encoder.tokenize(batch.values)
            with supply.doing("compute"):
                output = encoder.text_rows(tokens)
            rows.truncated = tokens.truncated
            rows.columns = {"text": np.array(batch.values, dtype=object)}
        rows.vectors = output.vectors.to(dtype=torch.float32, device="cpu").numpy()
        if output.item is not None:  # several rows per item, or none
            rows.index = rows.index[output.item]
            rows.columns = output.columns
            rows.lost = output.lost
            failed += [(k, "it has no tokens") for k in sorted(set(batch.index) - set(rows.index))]
        elif rows.vectors.shape[:-1] != (rows.size,):
            raise RuntimeError(f"{encoder.config.model} returned {rows.vectors.shape} for {rows.size} items")
    rows.skipped = [{"index": k, "item_id": str(side.item_id[k]), "reason": reason} for k, reason in failed]
    finite = np.isfinite(rows.vectors).all(axis=1)
    if not finite.all():
        item = shown(str(side.item_id[rows.index[int(finite.argmin())]]))
        raise InputError(
            f"{shown(encoder.config.model)} returns NaN or infinity for the {side.modality} {item}: its weights are "
            f"damaged, or {encoder.config.precision} is too narrow for them"
        )
    return rows
