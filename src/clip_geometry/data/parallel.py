"""Published sets of captions that are found by name: where they are looked for, in the layouts they come in."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

from clip_geometry.data.aligned import language_files, read_aligned
from clip_geometry.data.base import Dataset
from clip_geometry.data.captions import captions_of
from clip_geometry.data.files import CaptionsOnly
from clip_geometry.data.tables import Table, read_table
from clip_geometry.data.traits import KnownSplits
from clip_geometry.paths import existing_folder
from clip_geometry.registry import InputError


class ParallelConfig(KnownSplits, CaptionsOnly):
    """path: the folder of the set; default: the first of $CLIP_GEOMETRY_DATA/<name> and $CLIP_GEOMETRY_DATA/captions
    that holds it.

    split: one of SPLITS. images: the folder of the images; default: the folder `images` beside the captions, or else
    the folder of the captions itself.
    """

    LAYOUT: ClassVar[str]  # what an error says was looked for
    path: Path | None = None


def load_parallel(config: ParallelConfig, find: Callable[[Path], Table | None]) -> Dataset:
    """`find` gives the table of a split in a folder, with a column for each language, or None where it is not there.

    item_id is the image name, or the row number where the set comes without image names.
    """
    table = next((table for table in map(find, _folders(config)) if table is not None), None)
    if table is None:
        raise InputError(_not_found(config))
    folder = table.path if table.path.is_dir() else table.path.parent
    images = folder / "images" if (folder / "images").is_dir() else folder
    return captions_of(config, table, None, "image" if "image" in table.names else None, folder=images)


def table_at(path: Path) -> Table | None:
    return read_table(path) if path.is_file() else None


def aligned_at(folder: Path, texts: Iterable[str], image_names: str) -> Table | None:
    """The line-aligned files named by `texts`, with {language} in them, and `image_names` where that file is there."""
    files = {language: file for text in texts for language, file in language_files(folder / text).items()}
    names = next((file for ending in ("", ".gz") if (file := folder / (image_names + ending)).is_file()), None)
    return read_aligned(folder, dict(sorted(files.items())), names) if files else None


def _folders(config: ParallelConfig) -> list[Path]:
    if config.path is not None:
        return [existing_folder(config.path, f"a folder that holds {config.name}")]
    shared = os.environ.get("CLIP_GEOMETRY_DATA")
    return [Path(shared).expanduser() / name for name in (config.name, "captions")] if shared else []


def _not_found(config: ParallelConfig) -> str:
    expected = f"expected {config.LAYOUT}; docs/data.md says where to get it"
    if config.path is not None:
        return f"{config.path} holds no {config.split} split of {config.name}; {expected}"
    folders = " or ".join(map(str, _folders(config)))
    missing = f"is not in {folders}" if folders else "is looked for in CLIP_GEOMETRY_DATA, which is not set"
    return f"the {config.split} split of {config.name} {missing}; give its folder with path=…, {expected}"
