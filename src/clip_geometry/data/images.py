"""Decoding of images, and the image side of a list of files."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image

from clip_geometry.data.base import Side
from clip_geometry.registry import InputError

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
# formats that are decoded, whatever a file is called: Pillow's other decoders start Ghostscript for PostScript
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def load_image(file: Path | BinaryIO) -> Image.Image:
    """Decode an image file to RGB.

    As in the usual CLIP loaders, alpha is dropped, not blended; an animation gives its first frame; the EXIF
    orientation is NOT applied. Unlike them, 16-bit gray and floating point in [0, 1] are scaled to 8 bits.

    Raises:
        OSError: For truncated files, decompression bombs, and formats other than FORMATS.
        InputError: For pixels in other ranges.
    """
    try:
        with Image.open(file, formats=FORMATS) as image:
            pixels, limit = image.width * image.height, Image.MAX_IMAGE_PIXELS
            if limit is not None and pixels > limit:  # Pillow only warns, up to twice as many
                raise OSError(f"image has {pixels} pixels, more than {limit}: it could be a decompression bomb")
            return rgb(image)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # Pillow's decoders raise SyntaxError, ValueError, struct.error, bomb errors, …
        raise OSError(f"cannot decode image: {error}") from error


def rgb(image: Image.Image) -> Image.Image:
    """Convert any PIL mode to 8-bit RGB, before anything else: resizing a palette image would not interpolate."""
    if image.mode == "F" or image.mode.startswith("I"):
        image = _scaled(image)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _scaled(image: Image.Image) -> Image.Image:
    """Convert 16-bit gray or floating point to 8-bit gray; Pillow would clip them to white, and to black."""
    tags = getattr(image, "tag_v2", {})  # of TIFF: 258 bits per sample, 262 is 0 where 0 means white
    top = 1.0 if image.mode == "F" else 2.0 ** tags.get(258, (16,))[0] - 1
    pixels = np.asarray(image)
    low, high = pixels.min(), pixels.max()
    if (image.mode == "I" and image.format not in ("PNG", "PPM")) or not 0 <= low <= high <= top:
        kind = "floating point" if image.mode == "F" else "integers"
        raise InputError(
            f"its pixels are {kind} from {low} to {high}; 8 or 16 bits, or floating point from 0 to 1, were expected"
        )
    grey = np.rint(pixels.astype(np.float32) * (255 / top)).astype(np.uint8)
    return Image.fromarray(255 - grey if tags.get(262) == 0 else grey)


def load_listed(folder: Path, names: Sequence[str], k: int) -> Image.Image:
    return load_image(folder / names[k])


def listed_images(folder: Path, names: Sequence[str], item_id: Sequence[str], *, required: bool = False) -> Side | None:
    """Return the side of the images `names` in `folder`; None (`required`: InputError) if none of them exists.

    If only some are missing, they stay in the list and fail when loaded, so that they are counted.
    """
    for name in names:
        with suppress(OSError):  # a name that is too long
            if (folder / name).is_file():
                return Side("image", item_id, partial(load_listed, folder, names))
    if required:
        raise InputError(f"none of the {len(names)} images, such as {names[0]!r}, is in the folder {folder}")
    return None
