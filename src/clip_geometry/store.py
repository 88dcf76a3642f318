"""One data set embedded by one encoder, in one folder: raw float32 rows that can be trusted.

    recipe.json         what is embedded, and its hash, the key; written first
    image/, text/       vectors-00000.npy, metadata-00000.parquet, record-00000.json, … (the record last)
    manifest.json       checksums and facts; written last, so a folder without it is unfinished

A shard is a range of the data set's indices. The key does not contain a limit: a limit is a view.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry import files
from clip_geometry.config import Config, digest
from clip_geometry.embeddings import Embeddings, ShardedRows
from clip_geometry.progress import note
from clip_geometry.registry import InputError

RECIPE, MANIFEST = "recipe.json", "manifest.json"
MODALITIES = ("image", "text")


@dataclass(frozen=True)
class Shard:
    """The items start, …, stop − 1 of one side of a data set."""

    number: int
    start: int
    stop: int

    @property
    def vectors(self) -> str:
        return f"vectors-{self.number:05d}.npy"

    @property
    def metadata(self) -> str:
        return f"metadata-{self.number:05d}.parquet"

    @property
    def record(self) -> str:
        return f"record-{self.number:05d}.json"


def recipe_of(
    encoder: Config,
    encoder_revision: str,
    dataset: Config,
    dataset_revision: str,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Everything a row depends on, and the hash of it as "key".

    The configs enter as whole objects, so that a new field needs no thought. batch_size: only where rows
    depend on their batch (EncoderConfig.depends_on_batch).
    """
    recipe = {
        "encoder": encoder.model_dump(mode="json", serialize_as_any=True),
        "encoder_revision": encoder_revision,
        "dataset": dataset.model_dump(mode="json", serialize_as_any=True),
        "dataset_revision": dataset_revision,
        "batch_size": batch_size,
    }
    return {"key": digest(recipe), **recipe}


def indices_within(item_id: Sequence[str] | np.ndarray, limit: int | None, pair_on: str = "item_id") -> int:
    """How many leading indices a limit leaves: those of the first `limit` distinct items.

    A limit of 100 keeps 100 images and all their captions. A side that pairs on the label stays whole,
    since every class stands for any number of items.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; a positive number of items was expected")
    if limit is None or pair_on == "label" or limit >= len(item_id):
        return len(item_id)
    seen = set()
    for index, item in enumerate(item_id):
        seen.add(item)
        if len(seen) > limit:
            return index
    return len(item_id)


class Store:
    """The writing side of a store folder. Everything that writes needs `locked()`."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time; a second one says so and waits. Clears what killed processes left behind."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file; a folder to write the embeddings to was expected")
        lock = files.exclusive(self.folder, lambda: note(f"another process embeds into {self.folder}: waiting"))
        with ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock)
            except OSError as error:
                raise InputError(f"cannot write to {self.folder}: {error.strerror}") from None
            for folder in (self.folder, *(self.folder / modality for modality in MODALITIES)):
                files.remove_temporaries(folder)
            yield

    def recipe(self) -> dict[str, Any] | None:
        """recipe.json, with "shard_size" beside the recipe; None for a folder that is new or empty."""
        path = self.folder / RECIPE
        if path.exists():
            recipe = files.read_json(path)
            if recipe is None:
                raise InputError(f"{path} is damaged: delete the folder and embed again")
            return recipe
        others = sorted(
            path.name for path in self.folder.iterdir() if path.name != files.LOCK and not files.is_temporary(path)
        )
        if others:
            raise InputError(f"{self.folder} holds other files ({', '.join(others[:3])}): choose a new or empty folder")
        return None

    def begin(self, recipe: Mapping[str, Any], shard_size: int) -> None:
        files.write_json(self.folder / RECIPE, {**recipe, "shard_size": shard_size})

    def require(self, recipe: Mapping[str, Any]) -> None:
        """Raises InputError unless the store was begun with this recipe, naming what differs."""
        there = {key: value for key, value in (self.recipe() or {}).items() if key != "shard_size"}
        if there == recipe:
            return
        old, new = _flat(there), _flat(recipe)
        changed = [
            f"{key} is {old.get(key)!r} there and {new.get(key)!r} now"
            for key in sorted(old.keys() | new.keys())
            if key != "key" and old.get(key) != new.get(key)
        ]
        raise InputError(f"{self.folder} holds other embeddings: {'; '.join(changed[:4])}; choose another folder")

    def manifest(self) -> dict[str, Any] | None:
        """manifest.json; None where it is absent or damaged."""
        return files.read_json(self.folder / MANIFEST)

    def records(self, modality: str) -> list[dict[str, Any]]:
        """The readable records of a side, in the order of their items."""
        paths = sorted((self.folder / modality).glob("record-*.json"))
        records = [record for path in paths if (record := files.read_json(path))]
        return sorted(records, key=lambda record: record["start"])

    def covered(self, modality: str) -> int:
        """How many leading indices of a side were embedded, or begun, by earlier runs."""
        side = ((self.manifest() or {}).get("sides") or {}).get(modality)
        return max([record["stop"] for record in self.records(modality)] + [side["items"] if side else 0])

    def missing(self, modality: str, items: int, shard_size: int) -> list[Shard]:
        """The shards of the first `items` indices that are absent, shorter than wanted, or damaged."""
        recorded = {record["start"]: record for record in self.records(modality)}
        starts = range(0, items, shard_size)
        shards = [Shard(k, start, min(start + shard_size, items)) for k, start in enumerate(starts)]
        return [shard for shard in shards if not self._is_sound(modality, shard, recorded.get(shard.start))]

    def _is_sound(self, modality: str, shard: Shard, record: Mapping[str, Any] | None) -> bool:
        if record is None or record["stop"] != shard.stop:
            return False
        paths = {self.folder / modality / name: checksum for name, checksum in record["files"].items()}
        return all(path.is_file() and files.sha256_of(path) == checksum for path, checksum in paths.items())

    def write_shard(
        self,
        modality: str,
        shard: Shard,
        vectors: np.ndarray,
        columns: Mapping[str, Any],
        facts: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Writes (rows, d) float32 `vectors`, their metadata `columns`, and then the record, which it returns."""
        folder = self.folder / modality
        folder.mkdir(exist_ok=True)
        content = files.npy_bytes(vectors.astype(np.float32, copy=False))
        checksums = {
            shard.vectors: files.write_atomically(folder / shard.vectors, content),
            shard.metadata: files.write_atomically(folder / shard.metadata, _parquet(columns)),
        }
        record = {"start": shard.start, "stop": shard.stop, "rows": len(vectors), "d": vectors.shape[1]}
        record |= {"files": checksums, **facts}
        files.write_json(folder / shard.record, record)
        return record

    def unfinish(self) -> None:
        """Removes the manifest before shards are replaced: it would name checksums that no longer hold."""
        (self.folder / MANIFEST).unlink(missing_ok=True)
        files.sync_folder(self.folder)

    def finish(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the manifest and returns it as a reader will see it."""
        files.write_json(self.folder / MANIFEST, manifest)
        return self.manifest() or {}


def summary(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The manifest's entry of a side, from the records of all its shards."""
    lost = [record["lost"] for record in records if "lost" in record]
    return {
        "n": sum(record["rows"] for record in records),
        "d": max(record["d"] for record in records),
        "dtype": "float32",
        "items": records[-1]["stop"],
        "truncated": sum(record["truncated"] for record in records),
        "skipped": [item for record in records for item in record["skipped"]],
        **({"lost": sum(lost)} if lost else {}),
        "shards": list(records),
    }


def is_store(folder: Path) -> bool:
    return (folder / RECIPE).is_file() or (folder / MANIFEST).is_file()


def read_store(
    folder: str | Path, *, modality: str | None = None, limit: int | None = None, verify: bool = True
) -> dict[str, Embeddings]:
    """The embeddings of a finished store by modality, memory-mapped where a side is one shard or items have many rows.

    limit: the first so many items, as `indices_within` counts them. verify: compare all checksums first.
    Raises InputError for a store that is unfinished or damaged, or lacks the modality asked for.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} {'is a file' if folder.exists() else 'does not exist'}; a store was expected")
    if not is_store(folder):
        raise InputError(f"{folder} is no store of embeddings, it has no {MANIFEST}: give the folder of an embed")
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder}: the embedding was not finished: run the same embed command again")
    manifest = files.read_json(folder / MANIFEST)
    if manifest is None:
        raise InputError(f"{folder / MANIFEST} is damaged: run the same embed command again")
    sides = manifest["sides"]
    if modality is not None and modality not in sides:
        raise InputError(f"{folder} holds {' and '.join(sides)} embeddings, none of modality {modality!r}")
    wanted = sides if modality is None else [modality]
    return {name: _read_side(folder, manifest, name, limit, verify) for name in wanted}


def _read_side(folder: Path, manifest: Mapping, modality: str, limit: int | None, verify: bool) -> Embeddings:
    import pyarrow as pa
    import pyarrow.parquet as pq

    side = manifest["sides"][modality]
    shards = [shard for shard in side["shards"] if shard["rows"]]
    tables = []
    for shard in shards:
        path = _sound_file(folder / modality, shard, "metadata", verify)
        with pq.ParquetFile(path) as file:
            tables.append(file.read())
    table = pa.concat_tables(tables)
    columns = {name: _values(table.column(name)) for name in table.column_names}
    stop = _indices_read(columns, side, limit)
    rows = int(np.searchsorted(columns["index"], stop))
    parts = []
    for shard in shards:
        if shard["start"] < stop:
            path = _sound_file(folder / modality, shard, "vectors", verify)
            parts.append(np.load(path, mmap_mode="r", allow_pickle=False))
    several = "lost" in side  # then they may be too many for the memory
    if several and len(parts) > 1:
        vectors: Any = ShardedRows(parts).first(rows)
    else:
        vectors = (parts[0] if len(parts) == 1 else np.concatenate(parts))[:rows]
    columns = {name: column[:rows] for name, column in columns.items()}
    return Embeddings(
        vectors=vectors,
        modality=modality,
        item_id=columns.pop("item_id"),
        labels=columns.pop("label", None),
        language=side["language"],
        pair_on=side["pair_on"],
        metadata=columns,
        provenance=_provenance(folder, manifest, side, rows, stop),
    )


def _values(column: Any) -> np.ndarray:
    """A column as an array; equal strings are one object, since the rows of a text repeat theirs."""
    import pyarrow as pa

    if not pa.types.is_string(column.type):
        return column.to_numpy()
    encoded = column.dictionary_encode().unify_dictionaries()
    words = encoded.chunk(0).dictionary.to_numpy(zero_copy_only=False)
    return words[np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])]


def _indices_read(columns: Mapping[str, np.ndarray], side: Mapping[str, Any], limit: int | None) -> int:
    """`indices_within` as the data set had it, from the ids that were embedded and those that were skipped."""
    items = np.empty(side["items"], dtype=object)
    items[columns["index"]] = columns["item_id"]
    for skipped in side["skipped"]:
        items[skipped["index"]] = skipped["item_id"]
    return indices_within(items, limit, side["pair_on"])


def _sound_file(folder: Path, shard: Mapping[str, Any], kind: str, verify: bool) -> Path:
    name, checksum = next((name, checksum) for name, checksum in shard["files"].items() if name.startswith(kind))
    path = folder / name
    if not path.is_file():
        raise InputError(f"{path} is missing: run the same embed command again, it recomputes this shard")
    if verify and files.sha256_of(path) != checksum:
        raise InputError(
            f"{path} is damaged (its checksum is not the manifest's): "
            "run the same embed command again, it recomputes this shard"
        )
    return path


def _provenance(folder: Path, manifest: Mapping, side: Mapping, rows: int, stop: int) -> dict[str, Any]:
    encoder, dataset = manifest["recipe"]["encoder"], manifest["recipe"]["dataset"]
    return {
        "source": str(folder),
        "key": manifest["recipe"]["key"],
        "model": encoder["model"],
        "features": encoder["features"],
        "precision": encoder["precision"],
        "seed": encoder.get("seed"),
        "dataset": dataset["name"],
        "split": dataset["split"],
        "language": side["language"],
        "prompt": dataset["prompt"],
        "model_options": manifest.get("model_options", {}),
        "data_options": manifest.get("data_options", {}),
        "n": rows,
        "skipped": sum(item["index"] < stop for item in side["skipped"]),
        "truncated": sum(shard["truncated"] for shard in side["shards"] if shard["start"] < stop),
        **(
            {"lost": sum(shard.get("lost", 0) for shard in side["shards"] if shard["start"] < stop)}
            if "lost" in side
            else {}
        ),
        "dtype": side["dtype"],
        "class_names": manifest["class_names"],
        "encoder": manifest["encoder"],
        "recipe": manifest["recipe"],
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _parquet(columns: Mapping[str, Any]) -> bytes:
    import pyarrow as pa

    return files.parquet_bytes(pa.table({name: pa.array(column) for name, column in columns.items()}))
