"""Reader for clip-retrieval folders: img_emb/img_emb_0.npy, text_emb/text_emb_0.npy, metadata/metadata_0.parquet, ….

Row k of each of these files belongs to the same pair. https://github.com/rom1504/clip-retrieval
"""

import re
from pathlib import Path

import pyarrow as pa

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
    """Read all sides in the type in which they are stored, including float16.

    A single shard, and shards larger than memory, are memory-mapped. Rows are paired by position, as the layout
    intends: an image with several captions has several rows.
    """
    shards: dict[str, dict[int, Path]] = {}
    for subfolder in sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_dir() and _shards(path, ".npy")):
        modality = modality_of(subfolder.name)
        modality = modality or modality_name(subfolder.name.removesuffix(SUFFIX), shown(subfolder))
        shards[modality] = _shards(subfolder, ".npy")
    if not shards:
        raise InputError(f"{folder} has no shards such as img_emb/img_emb_0.npy or text_emb/text_emb_0.npy")
    modalities = sorted(shards, key=lambda name: name not in ("image", "text"))
    if (folder / METADATA).is_dir():
        shards[METADATA] = _shards(folder / METADATA, ".parquet")
    numbers = sorted(set().union(*shards.values()))
    for name, paths in shards.items():
        if missing := [number for number in numbers if number not in paths]:  # would misalign all later rows
            raise InputError(
                f"{shown(folder)} lacks shard {listed(missing)} of {name}, which another of its folders has; restore "
                "the shard or remove it from all folders"
            )
    tables = {number: read_table(path) for number, path in shards.get(METADATA, {}).items()}
    rows = {}
    for name in modalities:
        arrays = {number: check_vectors(read_npy(path), shown(path)) for number, path in shards[name].items()}
        for number, array in arrays.items():
            expected = (len(tables[number]) if tables else len(array), arrays[numbers[0]].shape[1])
            if array.shape != expected:
                raise InputError(
                    f"{shown(shards[name][number])} has the shape {array.shape}; expected {expected}, the rows of its "
                    "metadata and the columns of the first shard"
                )
        rows[name] = joined([*arrays.values()])
    table = pa.concat_tables(tables.values(), promote_options="permissive") if tables else pa.table({})
    columns = {name: column for name, column in columns_of(table).items() if name not in ID_NAMES}
    if "caption" in columns:
        columns["text"] = columns.pop("caption")
    return sides_of_columns(rows, columns, folder)


def _shards(folder: Path, suffix: str) -> dict[int, Path]:
    """Return number → file in numeric order, whether or not the numbers are zero-padded."""
    shards: dict[int, Path] = {}
    for path in sorted(folder.glob(f"{folder.name}_*{suffix}")):
        match = re.fullmatch(rf"{folder.name}_(\d+)", path.stem)
        if match:
            number = int(match[1])
            if number in shards:
                raise InputError(f"{path} and {shards[number].name} have the same shard number; remove one")
            shards[number] = path
    return dict(sorted(shards.items()))
