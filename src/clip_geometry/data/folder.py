"""A folder of images; its subfolders are the classes."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from clip_geometry.data.base import Dataset, DatasetEntry, FilesConfig, Side, datasets, is_unicode, revision
from clip_geometry.data.images import IMAGE_SUFFIXES, load_listed
from clip_geometry.data.prompts import class_prompts
from clip_geometry.paths import existing_folder
from clip_geometry.registry import InputError


class FolderConfig(FilesConfig):
    """A folder at `path`, searched with its subfolders."""

    name: str = "folder"


def image_names(root: Path) -> Iterator[str]:
    """Yield the relative posix paths of the image files under `root`, unsorted.

    Hidden files and folders (a name that begins with a dot) and links to folders are skipped.
    """

    def unreadable(error: OSError) -> None:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}")

    for folder, subfolders, files in os.walk(root, onerror=unreadable):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in files:
            if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith("."):
                yield (Path(folder) / name).relative_to(root).as_posix()


def load(config: FolderConfig) -> Dataset:
    """Load images sorted by path, in code point order; item_id is the relative posix path.

    There are labels and class names (the sorted subfolders) if every image is in a direct subfolder and at least two
    of these have images.
    """
    root = existing_folder(config.path, "a folder of images")
    names = sorted(image_names(root))
    if not names:
        raise InputError(f"{root} holds no images ({' '.join(sorted(IMAGE_SUFFIXES))})")
    for name in names:
        if not is_unicode(name):
            raise InputError(f"the name of {os.fsencode(root / name)!r} is not UTF-8; rename it")
    paths = [PurePosixPath(name).parts for name in names]
    index = {name: k for k, name in enumerate(sorted({parts[0] for parts in paths}))}
    labels = class_names = text = None
    if len(index) > 1 and all(len(parts) == 2 for parts in paths):
        labels, class_names = np.array([index[parts[0]] for parts in paths], dtype=np.int64), tuple(index)
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


datasets.add("folder", DatasetEntry(FolderConfig, load))
