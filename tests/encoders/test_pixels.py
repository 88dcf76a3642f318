"""The halves of open_clip's transform against the transform itself."""

import numpy as np
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

from clip_geometry.data.images import rgb
from clip_geometry.encoders.pixels import halves

FORMS = [
    {"size": 32},
    {"size": 20, "interpolation": "bilinear", "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.9)},
    {"size": 24, "resize_mode": "squash"},
    {"size": 24, "resize_mode": "longest"},
    {"size": (16, 28)},
]


def transform_of(form):
    return image_transform_v2(PreprocessCfg(**form), is_train=False)


def photograph(height, width, seed, mode="RGB"):
    """Smoothed noise: neighboring pixels are alike, as in a photograph."""
    noise = np.random.default_rng(seed).integers(0, 256, (max(height // 4, 2), max(width // 4, 2), 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC).convert(mode)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA"])
def test_cut_and_normalize_are_the_transform_bit_for_bit(form, mode):
    transform = transform_of(form)
    pixels = halves(transform)
    images = [photograph(h, w, seed, mode) for seed, (h, w) in enumerate([(40, 40), (9, 33), (64, 21), (32, 32)])]
    cut = torch.stack([pixels.cut(image) for image in images])
    assert cut.dtype == torch.uint8 and cut.shape[2:] == pixels.size
    assert torch.equal(pixels.normalize(cut), torch.stack([transform(rgb(image)) for image in images]))


@pytest.mark.parametrize("form", FORMS[:3], ids=str)
def test_resize_by_torch_differs_from_pillows_by_rounding_only(form):
    """By one of 255 levels at most: both round, Pillow after each of the two directions."""
    transform = transform_of(form)
    pixels = halves(transform)
    for height, width in ((8, 8), (12, 16), (16, 16)):
        images = [photograph(height, width, seed) for seed in range(3)]
        resized = pixels.resize(torch.stack([pixels.raw(image) for image in images]))
        cut = torch.stack([pixels.cut(image) for image in images])
        difference = (resized.int() - cut.int()).abs()
        assert difference.max() <= 1
        rows = [pixels.normalize(each).flatten(1) for each in (resized, cut)]
        assert torch.nn.functional.cosine_similarity(*rows).min() > 0.9999


@pytest.mark.parametrize(
    ("form", "size", "can"),
    [
        (FORMS[0], (32, 32), True),
        (FORMS[0], (33, 8), False),  # larger than the model's: it would cost bytes
        (FORMS[3], (8, 8), False),  # pads, which is not in torch's resize
        (FORMS[4], (8, 8), False),
    ],
)
def test_only_small_images_and_plain_steps_are_resized_on_the_device(form, size, can):
    assert halves(transform_of(form)).can_resize(*size) is can


def test_another_transform_has_no_halves():
    transform = transform_of(FORMS[0])
    for steps in (transform.transforms[1:2], transform.transforms[:-1], [torch.nn.Identity(), *transform.transforms]):
        assert halves(type(transform)(steps)) is None
    assert halves(lambda image: image) is None
