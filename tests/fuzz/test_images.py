"""Image files that were valid once, through the package's reader."""

import io

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from clip_geometry.data.images import load_image
from fuzz.outcome import fuzzed, outcome
from fuzz.strategies import damaged, often

GREY = np.arange(80, dtype=np.uint8).reshape(8, 10) * 3
COLOR = Image.fromarray(np.stack([GREY, GREY.T.reshape(8, 10), 255 - GREY], axis=2))
FRAMES = [COLOR, COLOR.transpose(Image.Transpose.ROTATE_180)]
PALETTE = COLOR.quantize(8)
EXIF = Image.Exif()
EXIF[274] = 6


def saved(image, format, **options):
    image.save(buffer := io.BytesIO(), format, **options)
    return buffer.getvalue()


IMAGES = {
    "png": saved(COLOR, "PNG"),
    "png with alpha": saved(COLOR.convert("RGBA"), "PNG"),
    "png of 16 bits": saved(Image.fromarray(GREY.astype(np.uint16) * 257), "PNG"),
    "png with a palette": saved(PALETTE, "PNG", transparency=0),
    "animated png": saved(COLOR, "PNG", save_all=True, append_images=FRAMES),
    "jpeg": saved(COLOR, "JPEG", exif=EXIF),
    "cmyk jpeg": saved(COLOR.convert("CMYK"), "JPEG"),
    "progressive jpeg": saved(COLOR, "JPEG", progressive=True),
    "gif": saved(PALETTE, "GIF", save_all=True, append_images=FRAMES),
    "bmp": saved(COLOR, "BMP"),
    "bmp of a bit": saved(COLOR.convert("1"), "BMP"),
    "tiff": saved(COLOR, "TIFF", compression="tiff_lzw"),
    "tiff of floats": saved(Image.fromarray(GREY.astype(np.float32) / 255), "TIFF"),
    "tiff of integers": saved(Image.fromarray(GREY.astype(np.int32)), "TIFF"),
    "webp": saved(COLOR, "WEBP"),
    "lossless webp": saved(COLOR, "WEBP", lossless=True, save_all=True, append_images=FRAMES),
    "ppm": saved(COLOR, "PPM"),
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(canary) (w) file closefile showpage\n",
    "text": b"P3 2 2 255 1 2 3 4 5 6 7 8 9 10 11 12",
}


@fuzzed(100, content=often(st.sampled_from(list(IMAGES.values())).flatmap(damaged), st.binary(max_size=64), 30))
def test_images(content):
    image = outcome(load_image, io.BytesIO(content), refusals=OSError)  # which embed counts as unreadable
    if image is not None:
        assert image.mode == "RGB" and np.asarray(image).dtype == np.uint8
