"""The reading side of a store: the embeddings of a finished folder, checked against its manifest."""

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry import files
from clip_geometry.embedding.store import MANIFEST, RECIPE, Manifest, Shard, indices_within, summary
from clip_geometry.embeddings import Embeddings, LazyRows, joined
from clip_geometry.io.reading import read_npy, read_table
from clip_geometry.paths import existing_folder
from clip_geometry.registry import InputError, shown

WAITS = (0.1, 0.2, 0.4, 0.8)  # seconds before a store that is being written is read again


def is_store(folder: Path) -> bool:
    return (folder / RECIPE).is_file() or (folder / MANIFEST).is_file()


def read_store(
    folder: str | Path, *, modality: str | None = None, limit: int | None = None, verify: bool = True
) -> dict[str, Embeddings]:
    """Reads a finished store, the folder that `embed` writes.

    A store that another process extends meanwhile is read again a few times.

    Args:
        folder: The store.
        modality: "image" or "text". Default: all that the store has.
        limit: Use only the first N items, with all their captions.
        verify: Compare the checksums of all files first.

    Returns:
        The embeddings of each modality, memory-mapped where they are one shard or large.

    Raises:
        InputError: The store is unfinished or damaged, or lacks the modality.

    Example:
        >>> import tempfile
        >>> import clip_geometry as cg
        >>> from clip_geometry.progress import quiet
        >>> model = cg.resolve_encoder("scenes-clip/fresh")
        >>> data = cg.load_dataset(cg.resolve_dataset("scenes", size=6))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = cg.embed(model, data, folder, device="cpu", progress=quiet)
        ...     cg.read_store(folder, modality="image", limit=4)["image"].vectors.shape
        (4, 512)
    """
    folder = existing_folder(folder, "a store")
    for wait in WAITS:
        before = _stamp(folder)
        try:
            if not is_store(folder):
                raise InputError(
                    f"{shown(folder)} is no store of embeddings, it has no {MANIFEST}: give the folder of an embed"
                )
            if not (folder / MANIFEST).is_file():
                raise InputError(f"{shown(folder)}: the embedding was not finished: run the same embed command again")
            manifest = files.read_json(folder / MANIFEST, Manifest)
            if manifest is None:
                raise InputError(f"{shown(folder / MANIFEST)} is damaged: run the same embed command again")
            sides = manifest["sides"]
            if modality is not None and modality not in sides:
                raise InputError(
                    f"{shown(folder)} holds {' and '.join(sides)} embeddings, none of modality {shown(modality)}"
                )
            wanted = sides if modality is None else [modality]
            return {name: _read_side(folder, manifest, name, limit, verify) for name in wanted}
        except InputError:
            if before == _stamp(folder) and not files.is_locked(folder):
                raise
        time.sleep(wait)
    raise InputError(f"{shown(folder)} is being written by another process: read it again when that has finished")


def _stamp(folder: Path) -> tuple[int, int] | None:
    """Differs once the manifest was replaced."""
    with suppress(OSError):
        status = (folder / MANIFEST).stat()
        return status.st_ino, status.st_mtime_ns
    return None


def _read_side(folder: Path, manifest: Mapping, modality: str, limit: int | None, verify: bool) -> Embeddings:
    import pyarrow as pa

    side = manifest["sides"][modality]
    _check_shards(side, folder / MANIFEST, modality)
    shards = [shard for shard in side["shards"] if shard["rows"]]
    tables = []
    for shard in shards:
        path = _sound_file(folder / modality, shard, "metadata", verify)
        tables.append(_checked_table(path, shard, one_row_each="lost" not in side))
        if tables[-1].schema != tables[0].schema:
            raise _contradiction(path, "its columns are not those of the first shard")
    table = pa.concat_tables(tables)
    columns = {name: _values(table.column(name)) for name in table.column_names}
    items = np.empty(side["items"], dtype=object)  # all ids of the data set: those embedded and those skipped
    items[columns["index"]] = columns["item_id"]
    for skipped in side["skipped"]:
        items[skipped["index"]] = skipped["item_id"]
    stop = indices_within(items, limit, side["pair_on"])
    rows = int(np.searchsorted(columns["index"], stop))
    parts = []
    for shard in shards:
        if shard["start"] < stop:
            path = _sound_file(folder / modality, shard, "vectors", verify)
            parts.append(read_npy(path))
            if (parts[-1].shape, parts[-1].dtype) != ((shard["rows"], shard["d"]), np.dtype(side["dtype"])):
                raise _contradiction(path, f"it holds {parts[-1].dtype} values of shape {parts[-1].shape}")
    several = "lost" in side  # then they may be too many for the memory
    parts[-1] = parts[-1][: rows - sum(map(len, parts[:-1]))]
    vectors: Any = LazyRows(parts) if several and len(parts) > 1 else joined(parts)
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


def _check_shards(side: dict[str, Any], path: Path, modality: str) -> None:
    """The shards have to follow each other, each with the files of its number, and to add up to the side."""
    stop = 0
    for number, record in enumerate(side["shards"]):
        shard = Shard(number, record["start"], record["stop"])
        if set(record["files"]) != {shard.vectors, shard.metadata} or not stop == shard.start < shard.stop:
            raise _contradiction(path, f"the {modality} shards do not follow each other, each once")
        skipped = {item["index"] for item in record["skipped"]}
        others = any(not shard.start <= index < shard.stop for index in skipped)
        if others or shard.stop - shard.start > record["rows"] + len(skipped):
            raise _contradiction(path, f"{modality} shard {number} lacks items or skipped others than its own")
        stop = shard.stop
    dimensions = {shard["d"] for shard in side["shards"] if shard["rows"]}
    if len(dimensions) != 1 or side | summary(side["shards"]) != side:
        raise _contradiction(path, f"the {modality} shards are not, taken together, what it says of them")


def _checked_table(path: Path, record: Mapping[str, Any], *, one_row_each: bool) -> Any:
    """The metadata of a shard, which has a row per vector and every item that was not skipped, in order."""
    import pyarrow as pa

    table = read_table(path)
    kinds = {"item_id": pa.types.is_string, "index": pa.types.is_integer}
    if not all(name in table.column_names and kinds[name](table.schema.field(name).type) for name in kinds):
        raise _contradiction(path, "it lacks the columns item_id and index")
    if len(table) != record["rows"] or any(table.column(name).null_count for name in kinds):
        raise _contradiction(path, f"it has {len(table)} rows, some without an item perhaps")
    index = table.column("index").to_numpy()
    skipped = [item["index"] for item in record["skipped"]]
    there = np.sort(np.concatenate((np.unique(index), np.array(skipped, dtype=np.int64))))
    ordered = bool((np.diff(index) >= (1 if one_row_each else 0)).all())
    if not ordered or not np.array_equal(there, np.arange(record["start"], record["stop"])):
        raise _contradiction(path, "its items are not those of the shard, in order and each once")
    return table


def _contradiction(path: Path, what: str) -> InputError:
    return InputError(
        f"{shown(path)} contradicts the records of the store, {what}: delete it and run the same embed command again"
    )


def _values(column: Any) -> np.ndarray:
    """A column as an array. Equal strings are one object, because rows of one text repeat it."""
    import pyarrow as pa

    if not pa.types.is_string(column.type) or column.null_count:
        return column.to_numpy()
    encoded = column.dictionary_encode().unify_dictionaries()
    words = encoded.chunk(0).dictionary.to_numpy(zero_copy_only=False)
    return words[np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])]


def _sound_file(folder: Path, shard: Mapping[str, Any], kind: str, verify: bool) -> Path:
    name, checksum = next((name, checksum) for name, checksum in shard["files"].items() if name.startswith(kind))
    path = folder / name
    if not path.is_file():
        raise InputError(f"{shown(path)} is missing: run the same embed command again, it recomputes this shard")
    if verify and files.sha256_of(path) != checksum:
        raise InputError(
            f"{shown(path)} is damaged (its checksum is not the manifest's): "
            "run the same embed command again, it recomputes this shard"
        )
    return path


def _provenance(folder: Path, manifest: Mapping, side: Mapping, rows: int, stop: int) -> dict[str, Any]:
    recipe = manifest["recipe"]
    encoder, dataset = recipe["encoder"], recipe["dataset"]
    shards = [shard for shard in side["shards"] if shard["start"] < stop]
    counts = {"truncated": sum(shard["truncated"] for shard in shards)}
    if "lost" in side:
        counts["lost"] = sum(shard.get("lost", 0) for shard in shards)
    if "dropped" in side:
        counts["dropped"] = side["dropped"]
    return {
        "source": str(folder),
        "key": recipe["key"],
        **{key: encoder[key] for key in ("model", "features", "precision")},
        "seed": encoder.get("seed"),
        "dataset": dataset["name"],
        "split": dataset["split"],
        "language": side["language"],
        "prompt": dataset["prompt"],
        **{key: manifest[key] for key in ("model_options", "data_options")},
        "n": rows,
        "skipped": sum(item["index"] < stop for item in side["skipped"]),
        **counts,
        "dtype": side["dtype"],
        **{key: manifest[key] for key in ("class_names", "encoder", "recipe")},
    }
