"""Hugging Face datasets as `save_to_disk` writes them: Arrow streams, of which state.json is the list.

pyarrow reads them without the library: their rows are memory-mapped, and nothing in a dataset_info.json is run.
"""

from pathlib import Path
from typing import Any

from clip_geometry.formats.arrow import sides_of_files
from clip_geometry.formats.format import Sides, register
from clip_geometry.reading import damaged, read_json
from clip_geometry.registry import InputError, listed, shown


def read_datasets(folder: Path) -> Sides:
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


def is_datasets(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("dataset_dict.json", "dataset_info.json"))


register("datasets", read_datasets, is_datasets)
