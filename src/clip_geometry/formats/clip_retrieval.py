"""Folders of clip-retrieval: img_emb/img_emb_0.npy, text_emb/text_emb_0.npy, metadata/metadata_0.parquet, ….

Row k of each belongs to the same pair. https://github.com/rom1504/clip-retrieval
"""

import re
from itertools import zip_longest
from pathlib import Path

from clip_geometry.embeddings import Embeddings, joined
from clip_geometry.formats.format import register
from clip_geometry.formats.tables import columns_of
from clip_geometry.formats.vectors import LABEL_NAMES, check_vectors
from clip_geometry.modalities import modality_name
from clip_geometry.progress import note
from clip_geometry.reading import read_npy, read_table
from clip_geometry.registry import InputError, listed, shown

SUFFIX = "_emb"
IMAGES = "img_emb"


def folder_of(modality: str) -> str:
    """Return `audio_emb`; images have img_emb."""
    return IMAGES if modality == "image" else modality + SUFFIX


def _folders(folder: Path) -> dict[str, str]:
    """Return modality → the name of its folder, images and texts first."""
    names = sorted(path.name for path in folder.glob(f"*{SUFFIX}") if path.is_dir())
    names.sort(key=lambda name: name not in (IMAGES, folder_of("text")))
    bare = {name: modality_name(name.removesuffix(SUFFIX), shown(folder / name)) for name in names}
    return {"image" if name == IMAGES else modality: name for name, modality in bare.items()}


def read_clip_retrieval(folder: Path) -> dict[str, Embeddings]:
    """Read both sides as stored, float16 too; a single shard, and shards larger than memory, are memory-mapped.

    The metadata's item_id (or image_path) identifies the rows if its values are distinct. They are not if an image has
    several captions; then the rows pair by position, as the layout intends.
    """
    import pyarrow as pa

    found = {modality: _shards(folder / name, name, ".npy") for modality, name in _folders(folder).items()}
    found = {modality: shards for modality, shards in found.items() if shards}
    if not found:
        raise InputError(f"{folder} has no shards such as img_emb/img_emb_0.npy or text_emb/text_emb_0.npy")
    numbers = sorted(set().union(*found.values()))
    metadata = _shards(folder / "metadata", "metadata", ".parquet")
    has_metadata = (folder / "metadata").is_dir()
    for name, shards in (*found.items(), *([("metadata", metadata)] if has_metadata else [])):
        if missing := [number for number in numbers if number not in shards]:  # it would shift all that follow
            raise InputError(
                f"{folder / (name if shards is metadata else folder_of(name))} lacks shard {listed(missing)}, which "
                "another folder has; restore it or remove it there too"
            )
    tables = [read_table(metadata[number]) for number in numbers if has_metadata]
    columns = columns_of(pa.concat_tables(tables, promote_options="permissive")) if tables else {}
    item_id, labels = None, None
    name = next((name for name in ("item_id", "image_path") if name in columns), None)
    if name is not None and len(set(columns[name])) == len(columns[name]):
        item_id = columns.pop(name)
    elif name is not None:
        note(f"{shown(folder)} has rows of one {name}, as with several captions an image: rows pair by position")
    if label := next((name for name in LABEL_NAMES if name in columns), None):
        labels = columns.pop(label)
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


def _shards(folder: Path, stem: str, suffix: str) -> dict[int, Path]:
    """Return number → file in numeric order, whether numbers are zero-padded or not."""
    shards: dict[int, Path] = {}
    for path in sorted(folder.glob(f"{stem}_*{suffix}")):
        if number := re.fullmatch(rf"{stem}_(\d+)", path.stem):
            if int(number[1]) in shards:
                raise InputError(f"{path} and {shards[int(number[1])].name} are the same shard twice; remove one")
            shards[int(number[1])] = path
    return dict(sorted(shards.items()))


register("clip-retrieval", read_clip_retrieval, lambda folder: bool(_folders(folder)))
