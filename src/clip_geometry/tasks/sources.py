"""Where the table of a task is found: at a path, in the shared folder, or on the Hugging Face hub."""

import os
from collections.abc import Sequence
from pathlib import Path

from clip_geometry.data.tables import Table
from clip_geometry.reading import first_line
from clip_geometry.registry import InputError
from clip_geometry.tasks.base import FileTaskConfig


def file_at(config: FileTaskConfig, names: Sequence[str], folder: str = "text") -> Path | None:
    """Find the file of a task.

    Args:
        config: Its `path` is the file, or a folder that has it.
        names: Of the file in a folder, in order of preference.
        folder: Where it is looked for in $CLIP_GEOMETRY_DATA if the task has no path.

    Returns:
        The file, or None if the task has no path and the shared folder has no such file.

    Raises:
        InputError: For a folder without the file.
    """
    place, shared = config.path, os.environ.get("CLIP_GEOMETRY_DATA")
    if place is not None and not place.is_dir():
        return place
    if place is None and shared:
        place = Path(shared).expanduser() / folder
    file = next((place / name for name in names if (place / name).is_file()), None) if place else None
    if file is None and config.path is not None:
        raise InputError(f"{config.path} holds no {config.name}; expected {' or '.join(names)} in it")
    return file


def hub_table(repository: str, subset: str | None, split: str, instead: str) -> Table:
    """Fetch a split of a data set; `instead`, the end of the error, says what to do without a network."""
    what = f"{repository}{f' ({subset})' if subset else ''}, split {split}"
    try:
        from datasets import load_dataset  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(
            f"{what}, is fetched from huggingface.co by the package datasets, which is not installed: "
            f"pip install 'clip-geometry[text]'; or {instead}"
        ) from None
    try:
        rows = load_dataset(repository, subset, split=split)
    except (OSError, ValueError) as error:  # no network, no such data set or split, not in the cache
        raise InputError(
            f"{what}, could not be fetched from huggingface.co ({type(error).__name__}: {first_line(error)}); {instead}"
        ) from None
    return Table(Path(repository), tuple(rows.column_names), lambda name: list(rows[name]))
