"""clip-retrieval: img_emb/img_emb_0.npy, text_emb/text_emb_0.npy and metadata/metadata_0.parquet, by rows a pair."""

from pathlib import Path

from clip_geometry.files import parquet_bytes, write_atomically
from clip_geometry.formats.clip_retrieval import SUFFIX, folder_of
from clip_geometry.formats.tables import arrow_column
from clip_geometry.formats.vectors import dtype_of, write_rows
from clip_geometry.formats.writers.base import Sets, aligned, writers
from clip_geometry.registry import InputError


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write one shard of each modality, aligned as pairs, so that an image with five captions appears five times.

    Raises:
        InputError: If `place` has other shards, which a reader would take for part of it.
    """
    import pyarrow as pa

    targets = {name: place / folder_of(name) / f"{folder_of(name)}_0.npy" for name in sets}
    metadata = place / "metadata" / "metadata_0.parquet"
    there = set(place.glob(f"*{SUFFIX}/*{SUFFIX}_*")) | set(place.glob("metadata/metadata_*"))
    others = sorted(str(path) for path in there - {*targets.values(), metadata})
    if others:
        raise InputError(f"{out} already has other shards ({', '.join(others[:3])}): choose a new folder")
    pairs = aligned(sets)
    first = next(iter(pairs.values()))
    columns = {"item_id": first.item_id, "label": first.labels}
    called = {("image", "path"): "image_path", ("text", "text"): "caption"}  # as clip-retrieval calls them
    for modality, side in pairs.items():
        for name, column in side.metadata.items():
            columns.setdefault(called.get((modality, name), name), column)
    columns.setdefault("image_path", first.item_id if "image" in pairs else None)
    columns = {name: arrow_column(column) for name, column in columns.items() if column is not None}
    table = pa.table(columns or {"item_id": pa.array([str(k) for k in range(len(first))])})
    for path in (*targets.values(), metadata):
        path.parent.mkdir(parents=True, exist_ok=True)
    for modality, side in pairs.items():
        write_rows(side, targets[modality])
    write_atomically(metadata, parquet_bytes(table))
    said = {folder_of(name): f"{len(side)} rows, {dtype_of(side)}" for name, side in pairs.items()}
    return said | {"metadata": f"of each row: {', '.join(table.column_names)}"}


writers.add("clip-retrieval", write)
