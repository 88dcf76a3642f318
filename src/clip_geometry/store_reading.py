"""The reading side of a store folder: the embeddings of a finished one, checked against its manifest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry import files
from clip_geometry.embeddings import Embeddings, ShardedRows, joined
from clip_geometry.registry import InputError
from clip_geometry.store import MANIFEST, RECIPE, indices_within


def is_store(folder: Path) -> bool:
    return (folder / RECIPE).is_file() or (folder / MANIFEST).is_file()


def read_store(
    folder: str | Path, *, modality: str | None = None, limit: int | None = None, verify: bool = True
) -> dict[str, Embeddings]:
    """The embeddings of a finished store by modality, memory-mapped where a side is one shard or large.

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
    vectors: Any = ShardedRows(parts) if several and len(parts) > 1 else joined(parts)
    vectors = vectors.first(rows) if isinstance(vectors, ShardedRows) else vectors[:rows]
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
