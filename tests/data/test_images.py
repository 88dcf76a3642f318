import io
import subprocess

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from clip_geometry.data.images import load_image, rgb
from clip_geometry.registry import InputError


def test_the_pixels_are_those_of_the_file(tmp_path, write_image):
    pixels = write_image(tmp_path / "a.png")
    image = load_image(tmp_path / "a.png")
    assert image.mode == "RGB"
    assert np.array_equal(np.asarray(image), pixels)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "1"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    grey = Image.new("RGB", (4, 3), (90, 90, 90)).convert(mode)
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    grey.save(path)
    image = load_image(path)
    assert (image.mode, image.size) == ("RGB", (4, 3))


def test_alpha_is_dropped_not_blended(tmp_path):
    Image.new("RGBA", (2, 2), (200, 10, 30, 0)).save(tmp_path / "a.png")
    assert load_image(tmp_path / "a.png").getpixel((0, 0)) == (200, 10, 30)


def test_a_palette_with_transparency_keeps_its_colors(tmp_path):
    image = Image.new("P", (2, 2), 1)
    image.putpalette([0, 0, 0, 200, 10, 30])
    image.save(tmp_path / "a.png", transparency=bytes([0, 128]))
    assert load_image(tmp_path / "a.png").getpixel((0, 0)) == (200, 10, 30)


def test_the_exif_orientation_is_left_alone(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (6, 4)).save(tmp_path / "a.jpg", exif=exif)
    assert load_image(tmp_path / "a.jpg").size == (6, 4)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "gif", "tif"])
def test_a_truncated_file_is_an_oserror(tmp_path, write_image, suffix):
    path = tmp_path / f"a.{suffix}"
    write_image(path, size=(64, 64))
    content = path.read_bytes()
    for length in (1, len(content) // 3, len(content) // 2):
        with pytest.raises(OSError):
            load_image(io.BytesIO(content[:length]))


def test_other_content_missing_files_and_impossible_names_are_oserrors(tmp_path):
    (tmp_path / "a.jpg").write_text("not an image")
    for name in ("a.jpg", "missing.jpg", ".", "a\0.jpg", "x" * 300):
        with pytest.raises(OSError):
            load_image(tmp_path / name)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # as it is outside of tests
@pytest.mark.parametrize("limit", [10, 20])  # Pillow warns above its limit and raises above twice that
def test_a_decompression_bomb_is_an_oserror(tmp_path, write_image, monkeypatch, limit):
    write_image(tmp_path / "a.png", size=(6, 5))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(OSError, match="decompression bomb"):
        load_image(tmp_path / "a.png")


def test_postscript_is_no_image_whatever_its_name(tmp_path, monkeypatch):
    def start(*arguments, **options):
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", start)
    (tmp_path / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(canary) print\n%%EOF\n"
    )
    with pytest.raises(OSError, match="cannot identify image file"):
        load_image(tmp_path / "a.png")


@pytest.mark.parametrize("values", [np.uint16([[0, 65535]]), np.float32([[0, 1]]), np.int32([[0, 200]])])
def test_pixels_of_more_than_eight_bits_are_unreadable(tmp_path, values):
    """Pillow would clip them to white, or to black."""
    Image.fromarray(values).save(tmp_path / "a.tif")
    with pytest.raises(OSError, match="convert it to 8 bits first"):
        load_image(tmp_path / "a.tif")
    with pytest.raises(InputError, match="convert it to 8 bits first"):
        rgb(Image.fromarray(values))
