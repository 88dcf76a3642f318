"""The embed loop, which embeds a data set by an encoder into a store, shard by shard.

Batches start at a shard's first item and never cross its end, and each shard starts with the requested batch size. So
the bytes of a shard do not depend on when, or after how many interruptions, it was computed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from clip_geometry.config import digest
from clip_geometry.data import load_dataset, resolve_dataset
from clip_geometry.data.base import Dataset, DatasetConfig, Side
from clip_geometry.data.given import given_dataset
from clip_geometry.embedding.engines import Engine, open_engine
from clip_geometry.embedding.rows import ShardMaker
from clip_geometry.embedding.store import Shard, Store, indices_within, read_store, summary
from clip_geometry.embedding.supply import Throughput
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.base import Encoder, EncoderConfig
from clip_geometry.encoders.own import OwnConfig, OwnEncoder
from clip_geometry.encoders.runtime import resolve_device
from clip_geometry.progress import Progress, note, progress
from clip_geometry.registry import InputError, instance, library_versions, listed, printable, shown
from clip_geometry.rows.arguments import real_number, whole_number

SHARD_SIZE = 4096
SHARD_BYTES = 2**27  # approximate size of a shard in bytes if items have many rows
THROUGHPUT = Throughput()


def embed(
    model: Any,
    data: Any,
    folder: str | Path | None = None,
    *,
    name: str | None = None,
    revision: str | None = None,
    preprocess: Callable[[Any], Any] | None = None,
    tokenizer: Callable[[list[str]], Any] | None = None,
    data_name: str | None = None,
    data_revision: str | None = None,
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
    """Embed data with a model, into a folder on disk (a store) or into memory.

    A store holds unnormalized float32 rows with metadata and checksums, in files (shards) of a few thousand items. Only
    missing or damaged shards are computed, so the same call resumes after an interruption. All modalities that the data
    and the model have in common are embedded.

    The model can be a name, or your own function or module, which is called with lists of at most `batch_size` RGB PIL
    images or texts, or with the output of `preprocess` and `tokenizer`. It returns a tensor or array (n, d). Modules
    are in eval mode during the call, and are neither moved nor copied.

    Args:
        model: A config from `resolve_encoder`, or its name; a function or torch module that takes a list of images or
            texts; a mapping {"image": f, "text": g} of these; a model with `encode_image` and `encode_text`; or a
            SentenceTransformer.
        data: A data set from `load_dataset`, or its name or path; lists {"image": images, "text": texts}, where an
            image is a PIL image or a path, and an item has one text or a list of texts; or a sequence, such as a torch
            Dataset, of (image, text), (image, texts) or (image, class number).
        folder: Folder of the store: a new or empty folder, or a store of the same model and data. Default: no store;
            the embeddings are returned.
        name: Name of your own model. Default: the name of its class or function.
        revision: Identifies your own model in the store's key. Default: a hash of the weights and structure of torch
            modules; required for functions.
        preprocess: Function that converts a PIL image to a tensor, for a model that takes a batch of stacked tensors. A
            function model given with only this option embeds images; with only `tokenizer`, it embeds texts.
        tokenizer: Function that converts a list of texts to the input of the model.
        data_name: Name of lists and sequences. Default: "given".
        data_revision: Identifies the content of lists and sequences in the store's key. Default: a hash of the pixels
            and texts; for image files, of their names, sizes and modification times.
        limit: Use only the first N items, with all their captions. A store that already has more items keeps them.
        batch_size: Items per batch, halved when memory runs out.
        shard_size: Items per shard. Default: about 4096, a multiple of the batch size; fewer if an item has many rows.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", …. Your own model stays on its device.
        max_corrupt: Share of unreadable items, between 0 and 1, that are skipped without an error.
        throughput: Options for speed, as a `Throughput`. The entry "run" of the manifest says which were used and how
            the time was spent.
        engine: "local" or "ray". Either engine can continue a store that the other began.
        address: Address of a Ray cluster (see `open_engine`).
        progress: Context manager that shows the progress, such as `clip_geometry.progress.progress`.

    Returns:
        With `folder`, the manifest of the store, a mapping. Without it, modality → `Embeddings`.

    Raises:
        InputError: An option is out of range, the folder holds something else, the data and the model have no modality
            in common, too many items cannot be read, your own model cannot be identified or does not return rows, or
            memory runs out.

    Example:
        >>> import tempfile
        >>> import clip_geometry as cg
        >>> from clip_geometry.progress import quiet
        >>> model = cg.encoders.resolve_encoder("scenes-clip/fresh")
        >>> data = cg.data.load_dataset("scenes", size=4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = cg.embed(model, data, folder, device="cpu", progress=quiet)
        ...     sets = cg.read_store(folder)
        >>> {modality: len(embeddings) for modality, embeddings in sets.items()}
        {'image': 4, 'text': 4}

        A function of your own, into memory:

        >>> import numpy as np
        >>> def lengths(texts):
        ...     return np.array([[len(text), text.count(" ")] for text in texts], dtype=float)
        >>> cg.embed(lengths, {"text": ["a cat", "two red dogs"]}, progress=quiet)["text"].vectors.tolist()
        [[5.0, 1.0], [12.0, 2.0]]
    """
    from clip_geometry.encoders import load_encoder, resolve_encoder

    for option, value in {"batch_size": batch_size, "shard_size": shard_size, "limit": limit}.items():
        if value is not None:
            whole_number(value, option)
    real_number(max_corrupt, "max_corrupt", lambda share: 0 <= share <= 1, "a share between 0 and 1")
    for option, value in {"data_name": data_name, "data_revision": data_revision, "name": name}.items():
        instance(value, str | None, option, "text")
    keyed = folder is not None
    own_data = {"data_name": data_name, "data_revision": data_revision}
    own_model: dict[str, Any] = {"name": name, "revision": revision, "preprocess": preprocess, "tokenizer": tokenizer}
    dataset = data
    if isinstance(data, str | Path | DatasetConfig):
        dataset = load_dataset(data if isinstance(data, DatasetConfig) else resolve_dataset(data))
    if isinstance(dataset, Dataset):
        _require_none(own_data, f"the data set {dataset.config.name}")
    else:
        dataset = given_dataset(data, name=data_name or "given", identity=data_revision, limit=limit, keyed=keyed)
    config = resolve_encoder(model) if isinstance(model, str) else model
    if isinstance(config, EncoderConfig):
        _require_none(own_model, config.model)
        eval_mode = nullcontext()
        load = load_encoder
    else:
        encoder = OwnEncoder(model, [side.modality for side in dataset.sides], **own_model, keyed=keyed)
        eval_mode = encoder.evaluating()
        config = encoder.config
        load = partial(_on_its_device, encoder)
    with eval_mode, TemporaryDirectory() if folder is None else nullcontext(folder) as store_folder:
        store = Store(store_folder)
        opening = open_engine(engine, address)
        maker = ShardMaker(config, dataset, store.folder.absolute(), device, batch_size, throughput, load)
        job = _Job(maker, store, limit, max_corrupt, progress)
        with store.locked():
            job.open(shard_size)
            manifest = store.manifest()
            missing = {name: store.missing(name, items, job.shard_size) for name, items in job.items.items()}
            if manifest is None or any(missing.values()):
                store.unfinish()
                with opening as workers:
                    sides = {side.modality: job.embed_side(side, missing[side.modality], workers) for side in job.sides}
                manifest = store.finish(job.facts(sides, workers.spent))
            else:
                for name in job.items:
                    job.check_corrupt(name, manifest["sides"][name]["skipped"])
        if keyed:
            return manifest
        return {modality: _in_memory(side) for modality, side in read_store(store_folder, limit=limit).items()}


def _require_none(options: Mapping[str, Any], what: str) -> None:
    """Raise InputError for options that identify or describe `what`, which its config already does."""
    names = [option for option, value in options.items() if value is not None]
    if names:
        raise InputError(f"{listed(names)} cannot be given for {what}, which is described by its config; leave it out")


def _on_its_device(encoder: OwnEncoder, config: EncoderConfig, device: str) -> Encoder:
    """Return the user's own model on its current device; raise InputError if another device was requested."""
    if device != "auto" and resolve_device(device) != encoder.device:
        raise InputError(
            f"device {device!r} was requested, but {config.model} is on {encoder.device}; move it first, and leave "
            "device out"
        )
    return encoder


def _in_memory(side: Embeddings) -> Embeddings:
    """Return a copy with the rows in memory, independent of the files of the store."""
    provenance = {key: value for key, value in side.provenance.items() if key not in ("source", "key", "recipe")}
    return replace(side, vectors=np.array(side.vectors), provenance=provenance)


def recipe_for(config: EncoderConfig, dataset: Dataset, batch_size: int) -> dict[str, Any]:
    """Return everything that the rows of a store depend on, with its hash as "key", which identifies the store.

    The configs are included as a whole, so that new fields are included automatically.
    """
    from clip_geometry.encoders import encoder_revision

    recipe = {
        "encoder": config.model_dump(mode="json", serialize_as_any=True),
        "encoder_revision": config.revision if isinstance(config, OwnConfig) else encoder_revision(config),
        "dataset": dataset.config.model_dump(mode="json", serialize_as_any=True),
        "dataset_revision": dataset.revision,
        "batch_size": batch_size if config.depends_on_batch else None,
    }
    return {"key": digest(recipe), **recipe}


@dataclass
class _Job:
    maker: ShardMaker
    store: Store
    limit: int | None
    max_corrupt: float
    progress: Progress
    shard_size: int = SHARD_SIZE

    @cached_property
    def recipe(self) -> dict[str, Any]:
        return recipe_for(self.maker.config, self.maker.dataset, self.maker.batch_size)

    @cached_property
    def sides(self) -> list[Side]:
        """The sides of the data set that the encoder can embed, taken from the manifest if there is one."""
        dataset = self.maker.dataset
        manifest = self.store.manifest()
        if manifest is not None:
            return [side for side in dataset.sides if side.modality in manifest["sides"]]
        encoder = self.maker.encoder
        supported = []
        reasons = {}
        for side in dataset.sides:
            try:
                encoder.require(side.modality)
                supported.append(side)
            except InputError as error:
                reasons[side.modality] = str(error)
        if not supported:
            raise InputError(
                f"the data set {dataset.config.name} has no modality that this model embeds: "
                f"{'; '.join(reasons.values())}; choose another"
            )
        for modality, reason in reasons.items():
            note(f"the {modality} side of {dataset.config.name} is left out: {reason}")
        return supported

    def open(self, shard_size: int | None) -> None:
        """Begin a new store, or check that the existing store has the same recipe and adopt its shard size."""
        existing = self.store.recipe()
        if existing is None:
            self.shard_size = self.new_shard_size(shard_size)
            for modality, items in self.items.items():
                if not items:
                    raise InputError(f"the {modality} side of {self.maker.dataset.config.name} is empty")
            self.store.begin(self.recipe, self.shard_size)
            return
        self.store.require(self.recipe)
        self.shard_size = existing["shard_size"]
        if shard_size not in (None, self.shard_size):
            raise InputError(
                f"{shown(self.store.folder)} has shards of {self.shard_size} items, not {shard_size}: leave the shard "
                "size out or choose another folder"
            )

    def new_shard_size(self, shard_size: int | None) -> int:
        batch_size = self.maker.batch_size
        config = self.maker.config
        if shard_size is None:
            items = max(1, min(SHARD_SIZE, SHARD_BYTES // max(1, self.maker.encoder.item_bytes)))
            if items >= batch_size:
                return items // batch_size * batch_size
            return batch_size if items == SHARD_SIZE else items
        if config.depends_on_batch and shard_size % batch_size:
            raise InputError(
                f"the rows of {config.model} depend on their batch: the shard size {shard_size} must be a multiple of "
                f"the batch size {batch_size}"
            )
        return shard_size

    @cached_property
    def items(self) -> dict[str, int]:
        """By modality, the number of leading items to store: those within the limit, or more if already stored."""
        within = {side.modality: indices_within(side.item_id, self.limit, side.pair_on) for side in self.sides}
        return {modality: max(items, self.store.covered(modality)) for modality, items in within.items()}

    def embed_side(self, side: Side, missing: Sequence[Shard], engine: Engine) -> dict[str, Any]:
        """Compute the missing shards of a side and return its entry in the manifest."""
        items = self.items[side.modality]
        starts = {shard.start for shard in missing}
        records = [record for record in self.store.records(side.modality) if record["start"] not in starts]
        skipped = [item for record in records for item in record["skipped"]]
        if missing:
            what = f"embedding {self.maker.dataset.config.name} ({side.modality})"
            bar = self.progress(what, items, items - sum(shard.stop - shard.start for shard in missing))
            with closing(engine.shards(self.maker, side, missing, bar)) as computed:
                for record in computed:
                    records.append(record)
                    skipped += record["skipped"]
                    self.check_corrupt(side.modality, skipped)
        records.sort(key=lambda record: record["start"])
        entry = summary(records)
        self.check_corrupt(side.modality, entry["skipped"])
        dropped = sum(side.dropped.get(item, 0) for item in set(side.item_id[:items])) if side.dropped else 0
        facts = {"language": side.language, "pair_on": side.pair_on, **({"dropped": dropped} if dropped else {})}
        return {**facts, **entry}

    def check_corrupt(self, modality: str, skipped: Sequence[dict]) -> None:
        items = self.items[modality]
        what = f"{len(skipped)} of {items} {modality} items of {self.maker.dataset.config.name} cannot be read"
        first = ", ".join(f"{shown(item['item_id'], 40)} ({printable(item['reason'])[:80]})" for item in skipped[:2])
        if len(skipped) == items:
            raise InputError(f"{what}, so none is left to embed: {first}")
        if len(skipped) > self.max_corrupt * items:
            raise InputError(
                f"{what}, more than the share {self.max_corrupt:g} that max_corrupt allows: {first}; repair them, or "
                "raise max_corrupt to skip them"
            )

    def facts(self, sides: dict[str, Any], spent: dict[str, Any]) -> dict[str, Any]:
        """Return the manifest."""
        config = self.maker.config
        dataset = self.maker.dataset
        dump_options: dict[str, Any] = {"mode": "json", "serialize_as_any": True, "exclude_defaults": True}
        return {
            "recipe": self.recipe,
            "model_options": config.model_dump(exclude={"model"}, **dump_options),
            "data_options": dataset.config.model_dump(exclude={"name", "split"}, **dump_options),
            "encoder": dict(self.maker.encoder.describe()),
            "sides": sides,
            "class_names": None if dataset.class_names is None else list(dataset.class_names),
            "batch_size": self.maker.batch_size,
            "shard_size": self.shard_size,
            "versions": library_versions(),
            "run": spent,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
