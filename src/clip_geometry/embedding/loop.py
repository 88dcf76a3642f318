"""The embed loop: a data set through an encoder into a store, shard by shard.

Batches start at a shard's first item and never cross its end, and each shard begins with the batch size asked
for. So a shard's bytes do not depend on when, or after how many interruptions, it was computed.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from clip_geometry.config import Config
from clip_geometry.data.base import Dataset, Side
from clip_geometry.embedding.engines import open_engine
from clip_geometry.embedding.engines.base import Engine, ShardMaker
from clip_geometry.embedding.shards.throughput import Throughput
from clip_geometry.embedding.store import Shard, Store, indices_within, recipe_of, summary
from clip_geometry.encoders.base import Encoder, EncoderConfig
from clip_geometry.progress import Progress, note, progress
from clip_geometry.registry import InputError, printable, shown
from clip_geometry.versions import library_versions

SHARD_SIZE = 4096
THROUGHPUT = Throughput()
SHARD_BYTES = 2**27  # of the rows of a shard, about, where an item has many


def embed(
    config: EncoderConfig,
    dataset: Dataset,
    folder: str | Path,
    *,
    limit: int | None = None,
    batch_size: int = 64,
    shard_size: int | None = None,
    device: str = "auto",
    max_corrupt: float = 0.01,
    throughput: Throughput = THROUGHPUT,
    engine: str = "local",
    address: str | None = None,
    progress: Progress = progress,
) -> dict[str, Any]:
    """Embeds both sides of `dataset` as far as the encoder can, and returns the store's manifest.

    Only missing or damaged shards are computed; the encoder is built only if there are any. limit: the first so
    many items (`store.indices_within`); a store that already holds more keeps them. shard_size: items a shard;
    about 4096, a multiple of the batch size, if not given; fewer where an item has many rows. max_corrupt: the share of
    a side's items that may be unreadable. throughput: what is done to be fast; the manifest's "run" says what was, and
    where the time went. engine, address: who computes (`open_engine`); a store that one began another may continue.
    """
    _check_options(batch_size, shard_size, max_corrupt)
    from clip_geometry.encoders import load_encoder

    store, workers = Store(folder), open_engine(engine, address)
    maker = ShardMaker(config, dataset, store.folder.absolute(), device, batch_size, throughput, load_encoder)
    with store.locked():
        job = _Job(config, dataset, store, maker, workers, batch_size, max_corrupt, progress)
        job.open(shard_size, limit)
        return job.run(limit)


def recipe_for(config: EncoderConfig, dataset: Dataset, batch_size: int) -> dict[str, Any]:
    """What the rows of a store depend on; its "key" names the store."""
    from clip_geometry.encoders import encoder_revision

    batch = batch_size if config.depends_on_batch else None
    return recipe_of(config, encoder_revision(config), dataset.config, dataset.revision, batch)


def _changed(config: Config, without: set[str]) -> dict[str, Any]:
    """The fields that are not at their defaults."""
    return config.model_dump(mode="json", serialize_as_any=True, exclude_defaults=True, exclude=without)


def _check_options(batch_size: int, shard_size: int | None, max_corrupt: float) -> None:
    for name, value in {"batch_size": batch_size, "shard_size": shard_size}.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; a positive number of items was expected")
    if not 0 <= max_corrupt <= 1:
        raise InputError(f"max_corrupt is {max_corrupt}; a share between 0 and 1 was expected")


@dataclass
class _Job:
    config: EncoderConfig
    dataset: Dataset
    store: Store
    maker: ShardMaker
    workers: AbstractContextManager[Engine]
    batch_size: int
    max_corrupt: float
    progress: Progress
    shard_size: int = SHARD_SIZE

    @cached_property
    def recipe(self) -> dict[str, Any]:
        return recipe_for(self.config, self.dataset, self.batch_size)

    @property
    def encoder(self) -> Encoder:
        return self.maker.encoder

    @cached_property
    def sides(self) -> list[Side]:
        """The sides that the data set has and the encoder can embed."""
        encoder = self.encoder  # what goes wrong in building it is not about the data set
        chosen, refusals = [], {}
        for side in self.dataset.sides:
            try:
                encoder.require(side.modality)
                chosen.append(side)
            except InputError as refusal:
                refusals[side.modality] = str(refusal)
        name = self.dataset.config.name
        if not chosen:
            raise InputError(
                f"the data set {name} has no side for this model: {'; '.join(refusals.values())}; "
                "choose another model or data set, or give a prompt where the set has classes"
            )
        for modality, refusal in refusals.items():
            note(f"the {modality} side of {name} is left out: {refusal}")
        return chosen

    def open(self, shard_size: int | None, limit: int | None) -> None:
        """Begins a store or checks the one that is there, whose shard size is kept."""
        there = self.store.recipe()
        if there is None:
            self.shard_size = self.new_shard_size(shard_size)
            for side in self.sides:
                self.items(side, limit)  # complains while nothing is written
            self.store.begin(self.recipe, self.shard_size)
            return
        self.store.require(self.recipe)
        self.shard_size = there["shard_size"]
        if shard_size not in (None, self.shard_size):
            raise InputError(
                f"{shown(self.store.folder)} has shards of {self.shard_size} items, not {shard_size}: "
                "leave the shard size out or choose another folder"
            )

    def new_shard_size(self, shard_size: int | None) -> int:
        if shard_size is None:
            fitting = SHARD_BYTES // self.encoder.item_bytes if self.encoder.item_bytes else SHARD_SIZE
            items = max(1, min(SHARD_SIZE, fitting))
            return items // self.batch_size * self.batch_size or (self.batch_size if items == SHARD_SIZE else items)
        if self.config.depends_on_batch and shard_size % self.batch_size:
            raise InputError(
                f"the rows of {self.config.model} depend on their batch: the shard size {shard_size} "
                f"must be a multiple of the batch size {self.batch_size}"
            )
        return shard_size

    def run(self, limit: int | None) -> dict[str, Any]:
        """Computes what is missing. Without a manifest that is at least the facts for it."""
        manifest = self.store.manifest()
        if manifest is not None:
            entries = manifest["sides"]
            sides = [side for side in self.dataset.sides if side.modality in entries]
            if not any(self.missing(side, limit) for side in sides):
                for side in sides:
                    self.check_corrupt(side, entries[side.modality]["skipped"], entries[side.modality]["items"])
                return manifest
        self.store.unfinish()
        with self.workers as engine:
            entries = {side.modality: self.embed_side(side, limit, engine) for side in self.sides}
        return self.store.finish(self.facts(entries, engine.spent))

    def items(self, side: Side, limit: int | None) -> int:
        """How many leading indices the store shall hold: those within the limit and those it has already."""
        if not len(side):
            raise InputError(f"the {side.modality} side of {self.dataset.config.name} is empty")
        return max(indices_within(side.item_id, limit, side.pair_on), self.store.covered(side.modality))

    def missing(self, side: Side, limit: int | None) -> list[Shard]:
        return self.store.missing(side.modality, self.items(side, limit), self.shard_size)

    def embed_side(self, side: Side, limit: int | None, engine: Engine) -> dict[str, Any]:
        items, missing = self.items(side, limit), self.missing(side, limit)
        again = {shard.start for shard in missing}
        records = [r for r in self.store.records(side.modality) if r["start"] not in again]
        done = items - sum(shard.stop - shard.start for shard in missing)
        if missing:
            records += self.embed_missing(side, missing, items, done, records, engine)
        records.sort(key=lambda record: record["start"])
        entry = summary(records)
        self.check_corrupt(side, entry["skipped"], items)
        return {"language": side.language, "pair_on": side.pair_on, **entry}

    def embed_missing(
        self, side: Side, missing: list[Shard], items: int, done: int, there: list[dict], engine: Engine
    ) -> list[dict[str, Any]]:
        skipped, records = [item for record in there for item in record["skipped"]], []
        shown = self.progress(side.modality, items, done)
        with closing(engine.shards(self.maker, side, missing, shown)) as finished:
            for record in finished:
                records.append(record)
                skipped += record["skipped"]
                self.check_corrupt(side, skipped, items)
        return records

    def check_corrupt(self, side: Side, skipped: Sequence[dict], items: int) -> None:
        what = f"{len(skipped)} of {items} {side.modality} items of {self.dataset.config.name} cannot be read"
        first = ", ".join(f"{shown(item['item_id'], 40)} ({printable(item['reason'])[:80]})" for item in skipped[:2])
        if len(skipped) == items:
            raise InputError(f"{what}, none is left to embed: {first}")
        if len(skipped) > self.max_corrupt * items:
            raise InputError(
                f"{what}, more than the share {self.max_corrupt:g} that max_corrupt allows: {first}; "
                "mend them, or raise max_corrupt to skip them"
            )

    def facts(self, entries: dict[str, Any], spent: dict[str, Any]) -> dict[str, Any]:
        names = self.dataset.class_names
        return {
            "recipe": self.recipe,
            "model_options": _changed(self.config, {"model"}),
            "data_options": _changed(self.dataset.config, {"name", "split"}),
            "encoder": dict(self.encoder.describe()),
            "sides": entries,
            "class_names": None if names is None else list(names),
            "batch_size": self.batch_size,
            "shard_size": self.shard_size,
            "versions": library_versions(),
            "run": spent,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
