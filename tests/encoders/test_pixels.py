"""The halves of open_clip's transform against the transform itself."""

import numpy as np
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

from clip_geometry.data.images import rgb
from clip_geometry.encoders.base import Pixels

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
    pixels = Pixels.of(transform)
    images = [photograph(h, w, seed, mode) for seed, (h, w) in enumerate([(40, 40), (9, 33), (64, 21), (32, 32)])]
    cut = torch.stack([pixels.cut(image) for image in images])
    assert cut.dtype == torch.uint8 and cut.shape[2:] == pixels.size
    assert torch.equal(pixels.normalize(cut), torch.stack([transform(rgb(image)) for image in images]))


def test_another_transform_has_no_halves():
    transform = transform_of(FORMS[0])
    for steps in (transform.transforms[1:2], transform.transforms[:-1], [torch.nn.Identity(), *transform.transforms]):
        assert Pixels.of(type(transform)(steps)) is None
    assert Pixels.of(lambda image: image) is None
