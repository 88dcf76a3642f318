"""Decoding of images, the image side for a list of files, and the data set of a folder of images."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np
from PIL import Image

from clip_geometry.data.base import Dataset, DatasetEntry, FilesConfig, Side, datasets, is_unicode, revision
from clip_geometry.data.prompts import class_prompts
from clip_geometry.paths import existing_folder
from clip_geometry.registry import InputError

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
# only these formats are decoded, whatever the file name: another decoder of Pillow runs Ghostscript for PostScript
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def load_image(file: Path | BinaryIO) -> Image.Image:
    """Decode an image file to RGB.

    As in the usual CLIP loaders, the alpha channel is dropped, not blended; only the first frame of an animation is
    used; and the EXIF orientation is NOT applied.

    Raises:
        OSError: The file is truncated, is a decompression bomb, or has a format other than FORMATS.
        InputError: Pixels have more than 8 bits.
    """
    try:
        with Image.open(file, formats=FORMATS) as image:
            pixels = image.width * image.height
            limit = Image.MAX_IMAGE_PIXELS
            if limit is not None and pixels > limit:  # Pillow only warns up to twice the limit
                raise OSError(f"image has {pixels} pixels, more than {limit}: it could be a decompression bomb")
            return rgb(image)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # Pillow's decoders raise SyntaxError, ValueError, struct.error, bomb errors, …
        raise OSError(f"cannot decode image: {error}") from error


def rgb(image: Image.Image) -> Image.Image:
    """Convert any PIL mode to 8-bit RGB. Do this first, because resizing a palette image would not interpolate."""
    if image.mode == "F" or image.mode.startswith("I"):  # Pillow would clip their values to white and black
        raise InputError("its pixels are floating point or integers of 16 bits or more; convert it to 8 bits first")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def load_listed(folder: Path, names: Sequence[str], k: int) -> Image.Image:
    return load_image(folder / names[k])


class FolderConfig(FilesConfig):
    """Options of a folder of images at `path`, which is searched recursively."""

    name: str = "folder"


def image_names(root: Path) -> Iterator[str]:
    """Yield the relative POSIX paths of the image files under `root`, unsorted.

    Hidden files and folders (whose names begin with a dot) and links to folders are skipped.
    """

    def unreadable(error: OSError) -> None:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}")

    for folder, subfolders, files in os.walk(root, onerror=unreadable):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in files:
            if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith("."):
                yield (Path(folder) / name).relative_to(root).as_posix()


def load(config: FolderConfig) -> Dataset:
    """Load images sorted by path in code point order; item_id is the relative POSIX path.

    The sorted subfolders are class names, and images have labels, if every image is in a direct subfolder and at least
    two subfolders have images.
    """
    root = existing_folder(config.path, "a folder of images")
    names = sorted(image_names(root))
    if not names:
        raise InputError(f"{root} has no images ({' '.join(sorted(IMAGE_SUFFIXES))})")
    for name in names:
        if not is_unicode(name):
            raise InputError(f"the name of {os.fsencode(root / name)!r} is not UTF-8; rename it")
    paths = [PurePosixPath(name).parts for name in names]
    index = {name: k for k, name in enumerate(sorted({parts[0] for parts in paths}))}
    labels = class_names = text = None
    if len(index) > 1 and all(len(parts) == 2 for parts in paths):
        labels = np.array([index[parts[0]] for parts in paths], dtype=np.int64)
        class_names = tuple(index)
    if config.prompt is not None:
        if class_names is None:
            raise InputError(f"prompt {config.prompt!r} needs classes, but {root} has no subfolders for classes")
        text = class_prompts(class_names, config.prompt, config.language)
    image = Side("image", names, partial(load_listed, root, names), labels=labels)
    return Dataset(config, revision(root, names), image, text, class_names)


datasets.add("folder", DatasetEntry(FolderConfig, load))
