"""A folder of images; its sub-folders are the classes."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from clip_geometry.data.base import Dataset, DatasetEntry, Side, datasets
from clip_geometry.data.files import FilesConfig, is_unicode, revision
from clip_geometry.data.images import IMAGE_SUFFIXES, load_listed
from clip_geometry.data.prompts import class_prompts
from clip_geometry.paths import existing_folder
from clip_geometry.registry import InputError


class FolderConfig(FilesConfig):
    """path: the folder, searched with its sub-folders."""

    name: str = "folder"


def image_names(root: Path) -> Iterator[str]:
    """Relative posix paths of the image files under `root`, unsorted.

    Hidden files and folders (a name that begins with a dot) and links to folders are passed over.
    """
    for folder, subfolders, files in os.walk(root, onerror=_unreadable):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in files:
            if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith("."):
                yield (Path(folder) / name).relative_to(root).as_posix()


def _unreadable(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be read: {error.strerror}")


def load(config: FolderConfig) -> Dataset:
    """Images sorted by path, in code point order; item_id is the path relative to the folder, in posix form.

    Labels and class names (the sorted sub-folders) where every image lies in a direct sub-folder and at least
    two of these hold images.
    """
    root = existing_folder(config.path, "a folder of images")
    names = sorted(image_names(root))
    if not names:
        raise InputError(f"{root} holds no images ({' '.join(sorted(IMAGE_SUFFIXES))})")
    for name in names:
        if not is_unicode(name):
            raise InputError(f"the name of {os.fsencode(root / name)!r} is not UTF-8; rename it")
    labels, class_names = _classes(names)
    text = None
    if config.prompt is not None:
        if class_names is None:
            raise InputError(f"prompt {config.prompt!r} needs classes, and {root} has no class sub-folders")
        text = class_prompts(class_names, config.prompt, config.language)
    return Dataset(
        config=config,
        revision=revision(root, names),
        image=Side("image", names, partial(load_listed, root, names), labels=labels),
        text=text,
        class_names=class_names,
    )


def _classes(names: list[str]) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    paths = [PurePosixPath(name) for name in names]
    class_names = tuple(sorted({path.parts[0] for path in paths}))
    if len(class_names) < 2 or any(len(path.parts) != 2 for path in paths):
        return None, None
    index = {name: k for k, name in enumerate(class_names)}
    return np.array([index[path.parts[0]] for path in paths], dtype=np.int64), class_names


datasets.add("folder", DatasetEntry(FolderConfig, load, "a folder of images; sub-folders are classes"))
