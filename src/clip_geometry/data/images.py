"""Decoding of images, and the image side of a list of files."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from PIL import Image

from clip_geometry.data.base import Side
from clip_geometry.registry import InputError

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})


def load_image(file: Path | BinaryIO) -> Image.Image:
    """An image file as RGB, fully decoded. Raises OSError for whatever cannot be decoded.

    As the usual CLIP loaders do it: alpha is dropped, not blended; of an animation the first frame; the EXIF
    orientation is NOT applied. Truncated files and decompression bombs are errors.
    """
    try:
        with Image.open(file) as image:
            image.info.pop("transparency", None)  # dropped anyway; Pillow warns about it in palette images
            return image.convert("RGB")
    except (OSError, MemoryError):
        raise
    except Exception as error:  # Pillow's decoders raise SyntaxError, ValueError, struct.error, bomb errors, …
        raise OSError(f"cannot decode image: {error}") from error


def load_listed(folder: Path, names: Sequence[str], k: int) -> Image.Image:
    return load_image(folder / names[k])


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def listed_images(folder: Path, names: Sequence[str], item_id: Sequence[str], *, required: bool = False) -> Side | None:
    """The side of the images `names` in `folder`; None if not one of them is there (`required`: an InputError).

    If only some are missing, they stay in the list and are errors when loaded, so that they are counted.
    """
    if any(_is_file(folder / name) for name in names):
        return Side("image", item_id, partial(load_listed, folder, names))
    if required:
        raise InputError(f"none of the {len(names)} images, such as {names[0]!r}, is in the folder {folder}")
    return None
