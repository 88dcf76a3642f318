"""Hugging Face datasets as `save_to_disk` writes them: Arrow streams, of which state.json is the list.

pyarrow reads them without the library: their rows are memory-mapped, and nothing in a dataset_info.json is run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from clip_geometry.io.arrow import sides_of_files
from clip_geometry.io.format import Sets, Sides
from clip_geometry.io.reading import damaged, read_json
from clip_geometry.io.writing import aligned, columns_beside, dtype_of, tables_of
from clip_geometry.registry import InputError, library, listed, shown

SHARD = "500MB"  # of a file, as in `save_to_disk`


def read(folder: Path) -> Sides:
    """Read the columns of vectors by their names as modalities, and item_id (or id), label and plain columns beside.

    Raises:
        InputError: The folder is a DatasetDict, which has a folder for each split.
    """
    if (folder / "dataset_dict.json").is_file():
        splits = read_json(folder / "dataset_dict.json", "the list of splits", dict[str, Any]).get("splits")
        raise InputError(
            f"{shown(folder)} is a DatasetDict of the splits {listed(splits if isinstance(splits, list) else ())}: "
            "give the folder of one of them"
        )
    state = read_json(folder / "state.json", "the state of a data set", dict[str, Any])
    files = state.get("_data_files")
    names = [each.get("filename") if isinstance(each, dict) else None for each in files or ()]
    if not names or any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise damaged(folder / "state.json", "datasets", f"its files are {listed(names)}")
    if state.get("_indices_files"):
        raise InputError(f"{shown(folder)} has rows chosen by indices: save it again after flatten_indices()")
    return sides_of_files([folder / str(name) for name in names], folder, ids=True, plain=True)


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write one row per pair, with the vectors in MODALITY_embedding, and what belongs to their rows.

    A column that differs between modalities is named after each.
    """
    import pyarrow as pa

    datasets = library("datasets", "datasets", "a folder of datasets")
    sides = {f"{name}_embedding": side for name, side in aligned(sets).items()}
    beside: dict[str, Any] = {}
    for side in sides.values():
        for name, column in columns_beside(side).items():
            own = name if name not in beside or beside[name].equals(column) else f"{side.modality}_{name}"
            beside |= {own: column} if own not in sides else {}
    schema, tables = tables_of(beside, sides)
    with TemporaryDirectory(dir=place) as folder, _without_bars(datasets):
        stream = f"{folder}/stream.arrow"
        with pa.OSFile(stream, "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for table in tables:
                writer.write_table(table)
        datasets.Dataset.from_file(stream).save_to_disk(place, max_shard_size=SHARD)
    n = len(next(iter(sides.values())))
    return {".": f"{n} rows, {', '.join(f'{name} {dtype_of(side)}' for name, side in sides.items())}"}


@contextmanager
def _without_bars(datasets: Any) -> Iterator[None]:
    disabled = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not disabled:
            datasets.enable_progress_bars()


def recognizes(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("dataset_dict.json", "dataset_info.json"))
