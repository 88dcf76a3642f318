import numpy as np
import pytest
import torch

import clip_geometry as cg
from clip_geometry.initialization.statistics import PHOTOGRAPHS


def test_a_sample_has_the_statistics_it_was_drawn_from():
    images = PHOTOGRAPHS.sample(32, 128, seed=1).permute(0, 2, 3, 1).numpy()
    found = cg.image_statistics(images)
    assert found.mean == pytest.approx(PHOTOGRAPHS.mean, abs=0.05)
    assert np.trace(found.within) == pytest.approx(np.trace(PHOTOGRAPHS.within), rel=0.4)  # less by the clipping
    assert found.between[0][0] == pytest.approx(PHOTOGRAPHS.between[0][0], rel=0.5)
    assert found.exponent == pytest.approx(PHOTOGRAPHS.exponent, abs=0.4)


def test_examples_stand_for_the_images():
    images = [np.full((40, 60, 3), value, np.uint8) for value in (0, 51, 255)]
    found = cg.image_statistics(images)
    assert found.sample(3, 32).mean((1, 2, 3)).tolist() == pytest.approx([0, 0.2, 1], abs=1e-6)
    assert found.sample(16, 32).shape == (3, 3, 32, 32)
    assert found.within[0][0] == pytest.approx(0, abs=1e-12)


def test_few_of_the_examples_are_typical():
    """Their mean cosine about the common mean is that of all, which that of four random ones mostly is not."""
    shades = np.linspace(0, 1, 16) ** 3
    found = cg.image_statistics([np.full((32, 32, 3), shade) for shade in shades])

    def cosine(rows):
        rows = torch.nn.functional.normalize(rows - found.examples.mean(), dim=1)
        return float(((rows @ rows.T).sum() - len(rows)) / (len(rows) * (len(rows) - 1)))

    assert cosine(found.sample(4, 8).flatten(1)) == pytest.approx(cosine(found.examples.flatten(1)), abs=0.05)


def test_captions():
    found = cg.text_statistics(["a red cube", "a blue ball on a mat"])
    assert (found.length, found.repeated) == (4.5, pytest.approx((9 + 6) / 81))
    lengths = [len(words) for words in found.sample(16)]
    assert np.mean(lengths) == pytest.approx(4.5, abs=0.5)
    assert torch.tensor(found.sample(400)[0]).ndim == 1


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([np.zeros((4, 4, 3))], "at least 2 images"),
        ([np.zeros((4, 4))] * 2, r"expected \(height, width, 3\)"),
        (np.zeros((2, 0, 0, 3)), r"has the shape \(0, 0, 3\)"),
        (np.full((2, 4, 4, 3), np.nan), "has float64 values; expected uint8, or floats from 0 to 1"),
        (np.full((2, 4, 4, 3), 255.0), "expected uint8, or floats from 0 to 1"),
        (np.full((2, 4, 4, 3), 255), "has int64 values"),
        (np.full((2, 4, 4, 3), "a"), "has <U1 values"),
        (None, "images are None; expected several"),
        ("photos/", "images are 'photos/'; expected several"),
    ],
)
def test_what_is_no_image(images, message):
    with pytest.raises(cg.InputError, match=message):
        cg.image_statistics(images)


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        (["one"], "at least 2 captions"),
        ("a red cube", "captions are 'a red cube'; expected a list of texts"),
        (None, "captions are None; expected a list of texts"),
        (["one", None], "captions hold None; expected texts"),
        ([["one"], ["two"]], r"captions hold \['one'\]; expected texts"),
    ],
)
def test_what_is_no_caption(captions, message):
    with pytest.raises(cg.InputError, match=message):
        cg.text_statistics(captions)
