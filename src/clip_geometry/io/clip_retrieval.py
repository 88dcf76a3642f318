"""Folders of clip-retrieval: img_emb/img_emb_0.npy, text_emb/text_emb_0.npy, metadata/metadata_0.parquet, ….

Row k of each belongs to the same pair. https://github.com/rom1504/clip-retrieval
"""

import re
from itertools import zip_longest
from pathlib import Path

from clip_geometry.embeddings import Embeddings, joined
from clip_geometry.io.format import Sets, Sides
from clip_geometry.io.npy import write_rows
from clip_geometry.io.parquet import columns_of
from clip_geometry.io.reading import read_npy, read_table
from clip_geometry.io.sides import LABEL_NAMES, check_vectors
from clip_geometry.io.writing import aligned, arrow_column, dtype_of
from clip_geometry.modalities import modality_name
from clip_geometry.progress import note
from clip_geometry.registry import InputError, listed, shown

IMAGES, SUFFIX = "img_emb", "_emb"
COLUMNS = {("image", "path"): "image_path", ("text", "text"): "caption"}  # as clip-retrieval calls them


def recognizes(folder: Path) -> bool:
    return bool(_folders(folder))


def _folders(folder: Path) -> dict[str, str]:
    """Return modality → the name of its folder, images and texts first."""
    names = sorted(path.name for path in folder.glob(f"*{SUFFIX}") if path.is_dir())
    names.sort(key=lambda name: name not in (IMAGES, f"text{SUFFIX}"))
    bare = {name: modality_name(name.removesuffix(SUFFIX), shown(folder / name)) for name in names}
    return {"image" if name == IMAGES else modality: name for name, modality in bare.items()}


def read(folder: Path) -> Sides:
    """Read both sides as stored, float16 too; a single shard, and shards larger than memory, are memory-mapped.

    The metadata's item_id (or image_path) identifies the rows if its values are distinct. They are not if an image has
    several captions; then the rows pair by position, as the layout intends.
    """
    import pyarrow as pa

    named = _folders(folder)
    found = {modality: _shards(folder / name, ".npy") for modality, name in named.items()}
    found = {modality: shards for modality, shards in found.items() if shards}
    if not found:
        raise InputError(f"{folder} has no shards such as img_emb/img_emb_0.npy or text_emb/text_emb_0.npy")
    numbers = sorted(set().union(*found.values()))
    metadata = _shards(folder / "metadata", ".parquet") if (folder / "metadata").is_dir() else None
    shards_in = {named[modality]: shards for modality, shards in found.items()}
    for name, shards in (shards_in if metadata is None else {**shards_in, "metadata": metadata}).items():
        if missing := [number for number in numbers if number not in shards]:  # it would shift all that follow
            raise InputError(
                f"{folder / name} lacks shard {listed(missing)}, which another folder has; restore it or remove it "
                "there too"
            )
    tables = [] if metadata is None else [read_table(metadata[number]) for number in numbers]
    columns = columns_of(pa.concat_tables(tables, promote_options="permissive")) if tables else {}
    label = next((name for name in LABEL_NAMES if name in columns), None)
    labels = None if label is None else columns.pop(label)
    item_id = None
    name = next((name for name in ("item_id", "image_path") if name in columns), None)
    if name is not None and len(set(columns[name])) == len(columns[name]):
        item_id = columns.pop(name)
    elif name is not None:
        note(f"{shown(folder)} has rows of one {name}, as with several captions an image: rows pair by position")
    sides = {}
    for modality, shards in found.items():
        arrays = [check_vectors(read_npy(path), shown(path)) for path in shards.values()]
        for path, rows, table in zip_longest(shards.values(), arrays, tables):
            if rows.shape[1] != arrays[0].shape[1]:
                raise InputError(f"{path} has {rows.shape[1]} columns and the shard before it {arrays[0].shape[1]}")
            if table is not None and len(table) != len(rows):
                raise InputError(f"{path} has {len(rows)} rows and its metadata {len(table)}; they belong row by row")
        own = {"text" if (modality, name) == ("text", "caption") else name: each for name, each in columns.items()}
        vectors = joined(arrays)
        provenance = {"source": str(folder), "dtype": str(vectors.dtype)}
        sides[modality] = Embeddings(vectors, modality, item_id, labels, metadata=own, provenance=provenance)
    return sides


def _shards(folder: Path, suffix: str) -> dict[int, Path]:
    """Return number → file in numeric order, whether numbers are zero-padded or not."""
    shards: dict[int, Path] = {}
    for path in sorted(folder.glob(f"{folder.name}_*{suffix}")):
        if number := re.fullmatch(rf"{folder.name}_(\d+)", path.stem):
            if int(number[1]) in shards:
                raise InputError(f"{path} and {shards[int(number[1])].name} are the same shard twice; remove one")
            shards[int(number[1])] = path
    return dict(sorted(shards.items()))


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write one shard of each modality, aligned as pairs, so that an image with five captions appears five times."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pairs = aligned(sets)
    first = next(iter(pairs.values()))
    columns = {"item_id": first.item_id, "label": first.labels}
    for modality, side in pairs.items():
        for name, column in side.metadata.items():
            columns.setdefault(COLUMNS.get((modality, name), name), column)
    columns.setdefault("image_path", first.item_id if "image" in pairs else None)
    known = {name: arrow_column(column) for name, column in columns.items() if column is not None}
    table = pa.table(known or {"item_id": pa.array([str(k) for k in range(len(first))])})
    (place / "metadata").mkdir()
    pq.write_table(table, place / "metadata" / "metadata_0.parquet")
    said = {}
    for modality, side in pairs.items():
        folder = place / (IMAGES if modality == "image" else modality + SUFFIX)
        folder.mkdir()
        write_rows(side, folder / f"{folder.name}_0.npy")
        said[folder.name] = f"{len(side)} rows, {dtype_of(side)}"
    return said | {"metadata": f"of each row: {', '.join(table.column_names)}"}
