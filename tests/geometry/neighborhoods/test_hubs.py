import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from clip_geometry.geometry import cross_hubs, hubs
from clip_geometry.registry import InputError
from support.clouds import cone


def hoover(counts):
    """As scikit-hubness 0.21 has it."""
    return 0.5 * np.abs(counts - counts.mean()).sum() / counts.sum()


@pytest.mark.parametrize("k", [1, 5, 30])
def test_it_is_that_of_the_counts_that_scikit_learn_finds(k):
    rng = np.random.default_rng(k)
    x, y = cone(400, 20, rng), cone(150, 20, rng)
    within = NearestNeighbors(n_neighbors=k, metric="cosine").fit(x).kneighbors(return_distance=False)
    across = NearestNeighbors(n_neighbors=k, metric="cosine").fit(y).kneighbors(x, return_distance=False)
    back = NearestNeighbors(n_neighbors=k, metric="cosine").fit(x).kneighbors(y, return_distance=False)
    cases = ((hubs(x, k=k), within, 400), (cross_hubs(x, y, k=k), across, 150))
    for found, neighbors, rows in (*cases, (cross_hubs(x, y, k=k, queries="text"), back, 400)):
        counts = np.bincount(neighbors.ravel(), minlength=rows)
        assert found.robin_hood == pytest.approx(hoover(counts), rel=1e-9)
        assert found.antihub_share == pytest.approx(np.mean(counts == 0), abs=1e-12)


def test_one_hub_of_four_rows_has_to_give_up_half_of_its_places():
    """Three spokes around an axis, k = 1: counts 3, 1, 0, 0, so that half of four places have to move."""
    x = np.array([[1, 0, 0, 2.0], [0, 1, 0, 2.0], [0, 0, 1, 2.0], [1 / 3, 1 / 3, 1 / 3, 2.0]])
    assert hubs(x, k=1) == (0.5, 0.5)


def test_one_text_that_every_image_finds():
    rng = np.random.default_rng(0)
    image = np.array([1.0, 0, 0]) + 0.01 * rng.normal(size=(50, 3))
    text = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0], [0, -1, 0]])
    assert cross_hubs(image, text, k=1) == pytest.approx((0.8, 0.8))
    assert cross_hubs(image, text, k=5) == (0, 0)  # all texts of every image


def test_rows_found_equally_often_have_none():
    angles = np.arange(20) * 2 * np.pi / 20
    assert hubs(np.stack([np.cos(angles), np.sin(angles)], axis=1), k=2) == (0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_common_direction_makes_hubs_and_antihubs(seed):
    x = np.random.default_rng(seed).normal(size=(1000, 128))
    shifted = x + 11.3 * np.eye(128)[0]
    assert hubs(x).robin_hood < 0.2 and hubs(x).antihub_share < 0.01
    assert hubs(shifted).robin_hood > 0.4 and hubs(shifted).antihub_share > 0.1


def test_the_fields_are_tensors_for_tensors():
    x = torch.from_numpy(cone(50, 4, np.random.default_rng(0)))
    assert hubs(x).robin_hood.dtype == cross_hubs(x, x).antihub_share.dtype == torch.float64
    assert float(hubs(x).robin_hood) == hubs(x.numpy()).robin_hood


def test_errors():
    x = cone(20, 3, np.random.default_rng(0))
    with pytest.raises(InputError, match="x has 10 rows; expected at least 11 for k = 10 neighbors, or a smaller k"):
        hubs(x[:10])
    with pytest.raises(InputError, match="text has 9 rows; expected at least 10 for k = 10 neighbors, or a smaller k"):
        cross_hubs(x, x[:9])
    with pytest.raises(InputError, match="image has 9 rows; expected at least 10"):
        cross_hubs(x[:9], x, queries="text")
    with pytest.raises(InputError, match="queries 'images' is unknown; did you mean 'image'"):
        cross_hubs(x, x, queries="images")
    with pytest.raises(InputError, match="image has 1 column; expected at least 2"):
        cross_hubs(x[:, :1], x[:, :1])
    with pytest.raises(InputError, match="rows of text are equal"):
        cross_hubs(x, np.ones((20, 3)))
