"""A store: a folder with one data set embedded by one encoder, as unnormalized float32 rows.

    recipe.json         model and data, with their hash, the key; written first
    image/, text/       vectors-00000.npy, metadata-00000.parquet, record-00000.json, … (the record last)
    manifest.json       checksums and facts; written last, so a folder without it is unfinished

A shard is a range of the data set's indices. The key does not include a limit, because a limit only selects items.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field
from typing_extensions import TypedDict  # pydantic accepts the standard one only from Python 3.12 on

from clip_geometry import files
from clip_geometry.embeddings import Embeddings, LazyRows, joined
from clip_geometry.io.reading import read_npy, read_table, reading_with
from clip_geometry.modalities import modality_name
from clip_geometry.paths import existing_folder
from clip_geometry.progress import note
from clip_geometry.registry import InputError, instance, listed, shown
from clip_geometry.rows.arguments import whole_number

RECIPE, MANIFEST = "recipe.json", "manifest.json"
Count = Annotated[int, Field(ge=0, le=2**53)]


class Strict(TypedDict):
    """Base class of the schemas that validate JSON files when read: types must match exactly; unknown keys are kept."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # pyright: ignore[reportGeneralTypeIssues]


class Skipped(Strict):
    """An item that was skipped and has no rows."""

    index: Count
    item_id: str
    reason: str


class RowFacts(Strict):
    """The common fields of a shard's record and a modality's entry in the manifest."""

    d: Count
    truncated: Count
    skipped: list[Skipped]
    lost: NotRequired[Count]


class ShardRecord(RowFacts):
    """The record of a finished shard: record-00000.json."""

    start: Count
    stop: Count
    rows: Count
    files: dict[str, str]


class SideFacts(RowFacts):
    """The entry of a modality in the manifest."""

    n: Count
    dtype: Literal["float32"]
    items: Count
    shards: list[ShardRecord]
    language: str | None
    pair_on: Literal["item_id", "label"]
    dropped: NotRequired[Count]


class Recipe(Strict):
    """The content of recipe.json; without shard_size, also the manifest's "recipe"."""

    key: str
    encoder: dict[str, Any]
    dataset: dict[str, Any]
    shard_size: NotRequired[Annotated[int, Field(ge=1)]]


class Manifest(Strict):
    """The content of manifest.json."""

    recipe: Recipe
    encoder: dict[str, Any]
    sides: Annotated[dict[Annotated[str, AfterValidator(modality_name)], SideFacts], Field(min_length=1)]
    class_names: list[str] | None
    model_options: dict[str, Any]
    data_options: dict[str, Any]


@dataclass(frozen=True)
class Shard:
    """A range of items, start, …, stop − 1, of one side of a data set."""

    number: int
    start: int
    stop: int

    @property
    def files(self) -> tuple[str, str, str]:
        """The names of its files of vectors, metadata and record."""
        number = f"{self.number:05d}"
        return f"vectors-{number}.npy", f"metadata-{number}.parquet", f"record-{number}.json"


def indices_within(item_id: Sequence[str] | np.ndarray, limit: int | None, pair_on: str = "item_id") -> int:
    """Return the number of leading indices that belong to the first `limit` distinct items.

    A limit of 100 keeps 100 images and all their captions. A side that pairs on the label is not limited, because a
    class stands for any number of items.
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
    """A store folder opened for writing. All methods that write must be called within `locked()`."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder and remove files that killed processes left behind; a second process waits and says so."""
        lock = files.exclusive(self.folder, lambda: note(f"another process embeds into {self.folder}: waiting"))
        with ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                names = {path.name for path in self.folder.iterdir() if not files.is_temporary(path)} - {files.LOCK}
                if names and RECIPE not in names:  # a foreign folder: nothing is locked, removed or written
                    raise InputError(
                        f"{shown(self.folder)} holds other files ({listed(sorted(names), 3)}): choose a new or empty "
                        "folder"
                    )
                stack.enter_context(lock)
            except OSError as error:
                raise InputError(f"cannot write to {shown(self.folder)}: {error.strerror}") from None
            files.remove_temporaries(self.folder)
            yield

    def recipe(self) -> dict[str, Any] | None:
        """Read recipe.json: the recipe and "shard_size"; None for a new or empty folder."""
        path = self.folder / RECIPE
        recipe = files.read_json(path, Recipe)
        if recipe is None and path.exists():
            raise InputError(f"{shown(path)} is damaged: delete the folder and embed again")
        return recipe

    def begin(self, recipe: Mapping[str, Any], shard_size: int) -> None:
        files.write_json(self.folder / RECIPE, {**recipe, "shard_size": shard_size})

    def require(self, recipe: Mapping[str, Any]) -> None:
        """Raise an InputError that names the differences unless the store was begun with this recipe."""
        stored = {key: value for key, value in (self.recipe() or {}).items() if key != "shard_size"}
        if stored == recipe:
            return
        old = _flat(stored)
        new = _flat(recipe)
        keys = [key for key in sorted(old.keys() | new.keys()) if key != "key" and old.get(key) != new.get(key)]
        differences = "; ".join(
            f"{key} is {shown(old.get(key), 40)} there and {shown(new.get(key), 40)} now" for key in keys[:3]
        )
        raise InputError(f"{shown(self.folder)} holds other embeddings: {differences}; choose another folder")

    def manifest(self) -> dict[str, Any] | None:
        """Read manifest.json; None if it is missing or damaged."""
        return files.read_json(self.folder / MANIFEST, Manifest)

    def records(self, modality: str) -> list[dict[str, Any]]:
        """Return the readable records of a modality, in the order of their items."""
        paths = sorted((self.folder / modality).glob("record-*.json"))
        records = [record for path in paths if (record := files.read_json(path, ShardRecord))]
        return sorted(records, key=lambda record: record["start"])

    def covered(self, modality: str) -> int:
        """Return the number of leading indices of a modality that earlier runs embedded or began to embed."""
        side = ((self.manifest() or {}).get("sides") or {}).get(modality)
        return max([record["stop"] for record in self.records(modality)] + [side["items"] if side else 0])

    def missing(self, modality: str, items: int, shard_size: int) -> list[Shard]:
        """Return the shards of the first `items` indices that are missing, too short or damaged."""
        intact = set()
        for record in self.records(modality):
            paths = {self.folder / modality / name: checksum for name, checksum in record["files"].items()}
            if all(path.is_file() and files.sha256_of(path) == checksum for path, checksum in paths.items()):
                intact.add((record["start"], record["stop"]))
        starts = range(0, items, shard_size)
        shards = [Shard(k, start, min(start + shard_size, items)) for k, start in enumerate(starts)]
        return [shard for shard in shards if (shard.start, shard.stop) not in intact]

    def write_shard(
        self, modality: str, shard: Shard, vectors: np.ndarray, columns: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write (rows, d) float32 `vectors`, their metadata `columns` and then the record; return the record."""
        import pyarrow as pa

        folder = self.folder / modality
        folder.mkdir(exist_ok=True)
        table = pa.table({name: pa.array(column) for name, column in columns.items()})
        vectors_name, metadata_name, record_name = shard.files
        contents = {vectors_name: files.npy_bytes(vectors.astype(np.float32, copy=False))}
        contents[metadata_name] = files.parquet_bytes(table)
        checksums = {name: files.write_atomically(folder / name, content) for name, content in contents.items()}
        record = {"start": shard.start, "stop": shard.stop, "rows": len(vectors), "d": vectors.shape[1]}
        record |= {"files": checksums, **facts}
        files.write_json(folder / record_name, record)
        return record

    def unfinish(self) -> None:
        """Remove the manifest before shards are replaced, because its checksums would become wrong."""
        (self.folder / MANIFEST).unlink(missing_ok=True)
        files.sync_folder(self.folder)

    def finish(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest and return it as read back from the file."""
        files.write_json(self.folder / MANIFEST, manifest)
        return self.manifest() or {}


def summary(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the manifest's entry of a modality, computed from the records of all its shards."""
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


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings; the keys become paths such as "encoder.seed"."""
    flat = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def is_store(folder: Path) -> bool:
    return (folder / RECIPE).is_file() or (folder / MANIFEST).is_file()


def read_store(folder: str | Path, *, modality: str | None = None, limit: int | None = None) -> dict[str, Embeddings]:
    """Read a finished store, a folder written by `embed`.

    Args:
        folder: The store.
        modality: "image" or "text". Default: all modalities of the store.
        limit: Use only the first N items, with all their captions.

    Returns:
        A mapping of modality → `Embeddings`. Large rows, and rows in a single file, are memory-mapped.

    Raises:
        InputError: The store is unfinished or damaged, or lacks the modality.

    Example:
        >>> import tempfile
        >>> import clip_geometry as cg
        >>> from clip_geometry.progress import quiet
        >>> model = cg.encoders.resolve_encoder("scenes-clip/fresh")
        >>> data = cg.data.load_dataset("scenes", size=6)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = cg.embed(model, data, folder, device="cpu", progress=quiet)
        ...     cg.read_store(folder, modality="image", limit=4)["image"].vectors.shape
        (4, 512)
    """
    folder = existing_folder(folder, "a store")
    instance(modality, str | None, "modality", "the name of a modality")
    limit = None if limit is None else whole_number(limit, "limit")
    if not is_store(folder):
        raise InputError(f"{shown(folder)} is not a store of embeddings: it has no {MANIFEST}; give another folder")
    manifest = files.read_json(folder / MANIFEST, Manifest)
    if manifest is None:
        problem = f"{MANIFEST} is damaged" if (folder / MANIFEST).is_file() else "the embedding was not finished"
        raise InputError(f"{shown(folder)}: {problem}: run the same embed command again")
    sides = manifest["sides"]
    if modality is not None and modality not in sides:
        raise InputError(
            f"{shown(folder)} holds {' and '.join(sides)} embeddings, but no embeddings of modality {shown(modality)}"
        )
    names = sides if modality is None else [modality]
    return {name: _read_side(folder, manifest, name, limit) for name in names}


def _read_side(folder: Path, manifest: Mapping, modality: str, limit: int | None) -> Embeddings:
    """Read the first `limit` items of one modality of a store, and check that its files agree with the manifest."""
    import pyarrow as pa

    side = manifest["sides"][modality]
    has_several_rows_per_item = "lost" in side  # such rows may exceed the memory
    shards: dict[Shard, Mapping[str, Any]] = {}
    for number, record in enumerate(side["shards"]):
        if record["rows"]:
            shards[Shard(number, record["start"], record["stop"])] = record
    tables = [read_table(_intact_file(folder / modality, shard.files[1], shards[shard])) for shard in shards]
    with reading_with(folder / MANIFEST, "manifest"):
        table = pa.concat_tables(tables)
        columns = {name: _values(table.column(name)) for name in table.column_names}
        has_all_rows = list(map(len, tables)) == [record["rows"] for record in shards.values()]
        if not has_all_rows or not _covers(side, columns["index"]):
            raise _contradiction(folder / MANIFEST, f"the {modality} shards do not hold its items in order")
        items = np.empty(side["items"], dtype=object)  # ids of all items, embedded or skipped
        items[columns["index"]] = columns["item_id"]
        for skipped in side["skipped"]:
            items[skipped["index"]] = skipped["item_id"]
    stop = indices_within(items, limit, side["pair_on"])
    rows = int(np.searchsorted(columns["index"], stop))
    parts = []
    for shard, record in shards.items():
        if not parts or shard.start < stop:
            path = _intact_file(folder / modality, shard.files[0], record)
            part = read_npy(path)
            if (part.shape, part.dtype) != ((record["rows"], side["d"]), np.dtype(side["dtype"])):
                raise _contradiction(path, f"it holds {part.dtype} values of shape {part.shape}")
            parts.append(part)
    parts[-1] = parts[-1][: rows - sum(map(len, parts[:-1]))]
    vectors: Any = LazyRows(parts) if has_several_rows_per_item and len(parts) > 1 else joined(parts)
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


def _covers(side: dict[str, Any], index: np.ndarray) -> bool:
    """Return whether the shards are contiguous and add up to the side, and only the skipped items have no rows."""
    shards = side["shards"]
    steps = np.diff(index)
    items = np.union1d(index, [item["index"] for item in side["skipped"]])
    return (
        side | summary(shards) == side
        and [record["start"] for record in shards] == [0, *(record["stop"] for record in shards[:-1])]
        and bool((steps >= (0 if "lost" in side else 1)).all())
        and len(items) == side["items"]
        and np.array_equal(items, np.arange(len(items)))
    )


def _contradiction(path: Path, what: str) -> InputError:
    return InputError(
        f"{shown(path)} contradicts the records of the store, {what}: delete it and run the same embed command again"
    )


def _values(column: Any) -> np.ndarray:
    """Convert a column to an array. Equal strings share one object, because all rows of a text repeat it."""
    import pyarrow as pa

    if not pa.types.is_string(column.type) or column.null_count:
        return column.to_numpy()
    encoded = column.dictionary_encode().unify_dictionaries()
    words = encoded.chunk(0).dictionary.to_numpy(zero_copy_only=False)
    return words[np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])]


def _intact_file(folder: Path, name: str, record: Mapping[str, Any]) -> Path:
    """Return the path of a file of a shard; raise InputError if it is missing or damaged."""
    path = folder / name
    problem = None
    if not path.is_file():
        problem = "missing"
    elif files.sha256_of(path) != record["files"].get(name):
        problem = "damaged (its checksum differs from the manifest's)"
    if problem:
        raise InputError(f"{shown(path)} is {problem}: run the same embed command again to recompute this shard")
    return path


def _provenance(folder: Path, manifest: Mapping, side: Mapping, rows: int, stop: int) -> dict[str, Any]:
    """Return the facts on the origin of rows: model, data set, options, and counts of skipped and truncated items."""
    recipe = manifest["recipe"]
    encoder = recipe["encoder"]
    dataset = recipe["dataset"]
    shards = [shard for shard in side["shards"] if shard["start"] < stop]
    lost = {"lost": sum(shard.get("lost", 0) for shard in shards)} if "lost" in side else {}
    return {
        "source": str(folder),
        "key": recipe["key"],
        **{key: encoder.get(key) for key in ("model", "features", "precision", "seed")},
        "dataset": dataset.get("name"),
        "split": dataset.get("split"),
        "language": side["language"],
        "prompt": dataset.get("prompt"),
        **{key: manifest[key] for key in ("model_options", "data_options")},
        "n": rows,
        "skipped": sum(item["index"] < stop for item in side["skipped"]),
        "truncated": sum(shard["truncated"] for shard in shards),
        **lost,
        **{key: side[key] for key in ("dropped", "dtype") if key in side},
        **{key: manifest[key] for key in ("class_names", "encoder", "recipe")},
    }
