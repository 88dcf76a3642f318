"""Folders of clip-retrieval: img_emb/img_emb_0.npy, text_emb/text_emb_0.npy, metadata/metadata_0.parquet, ….

Row k of each belongs to the same pair. https://github.com/rom1504/clip-retrieval
"""

import re
from pathlib import Path

from clip_geometry.embeddings import joined
from clip_geometry.io.reading import read_npy, read_table
from clip_geometry.io.sides import ID_NAMES, Sides, check_vectors, modality_of, sides_of_columns
from clip_geometry.io.tables import columns_of
from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, listed, shown

SUFFIX, METADATA = "_emb", "metadata"


def recognizes(folder: Path) -> bool:
    return any(path.is_dir() for path in folder.glob(f"*{SUFFIX}"))


def read(folder: Path) -> Sides:
    """Read both sides as stored, float16 too; a single shard, and shards larger than memory, are memory-mapped.

    Rows pair by position, as the layout intends: an image may have several captions, and so several rows.
    """
    import pyarrow as pa

    found = {}
    for place in sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_dir()):
        modality = modality_of(place.name) or modality_name(place.name.removesuffix(SUFFIX), shown(place))
        if shards := _shards(place, ".npy"):
            found[modality] = shards
    if not found:
        raise InputError(f"{folder} has no shards such as img_emb/img_emb_0.npy or text_emb/text_emb_0.npy")
    metadata = {METADATA: _shards(folder / METADATA, ".parquet")} if (folder / METADATA).is_dir() else {}
    numbers = sorted(set().union(*found.values()))
    for name, shards in {**found, **metadata}.items():
        if missing := [number for number in numbers if number not in shards]:  # it would shift all that follow
            raise InputError(
                f"{shown(folder)} lacks shard {listed(missing)} of {name}, which another folder in it has; restore it "
                "or remove it there too"
            )
    columns, lengths = {}, {}
    for shards in metadata.values():
        tables = [read_table(shards[number]) for number in numbers]
        lengths = dict(zip(numbers, map(len, tables), strict=True))
        columns = columns_of(pa.concat_tables(tables, promote_options="permissive"))
        columns = {
            "text" if name == "caption" else name: column for name, column in columns.items() if name not in ID_NAMES
        }
    rows = {}
    for modality, shards in found.items():
        arrays = {number: check_vectors(read_npy(path), shown(path)) for number, path in shards.items()}
        for number, array in arrays.items():
            width, length = arrays[numbers[0]].shape[1], lengths.get(number, len(array))
            if array.shape != (length, width):
                raise InputError(
                    f"{shown(shards[number])} has {len(array)} rows and {array.shape[1]} columns; expected {length} as "
                    f"in its metadata, and {width} as in the first shard"
                )
        rows[modality] = joined([*arrays.values()])
    ordered = sorted(rows, key=lambda name: name not in ("image", "text"))
    return sides_of_columns({name: rows[name] for name in ordered}, columns, folder)


def _shards(folder: Path, suffix: str) -> dict[int, Path]:
    """Return number → file in numeric order, whether numbers are zero-padded or not."""
    shards: dict[int, Path] = {}
    for path in sorted(folder.glob(f"{folder.name}_*{suffix}")):
        if number := re.fullmatch(rf"{folder.name}_(\d+)", path.stem):
            if int(number[1]) in shards:
                raise InputError(f"{path} and {shards[int(number[1])].name} are the same shard twice; remove one")
            shards[int(number[1])] = path
    return dict(sorted(shards.items()))
