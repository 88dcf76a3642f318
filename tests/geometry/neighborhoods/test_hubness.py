import numpy as np
import pytest
import torch
from scipy.stats import skew
from sklearn.neighbors import NearestNeighbors

from clip_geometry.geometry import hubness
from clip_geometry.registry import InputError
from support.clouds import cone


@pytest.mark.parametrize("k", [1, 5, 30])
def test_is_the_skewness_of_the_counts_that_scikit_learn_finds(k):
    x = cone(400, 20, np.random.default_rng(k))
    found = NearestNeighbors(n_neighbors=k, metric="cosine").fit(x).kneighbors(return_distance=False)
    assert float(hubness(x, k=k)) == pytest.approx(skew(np.bincount(found.ravel(), minlength=400)), rel=1e-9)


def test_one_hub_has_the_skewness_of_one_count():
    """Three spokes around an axis: it is the nearest row of each; its own, of three equally near, is the first."""
    x = np.array([[1, 0, 0, 2.0], [0, 1, 0, 2.0], [0, 0, 1, 2.0], [1 / 3, 1 / 3, 1 / 3, 2.0]])
    assert float(hubness(x, k=1)) == pytest.approx(skew([1, 0, 0, 3]), rel=1e-12)


@pytest.mark.parametrize("k", [2, 4])
def test_rows_found_equally_often_have_none(k):
    """A regular polygon: each row is the neighbor of the k/2 rows on both its sides; and all rows, at k = n − 1."""
    angles = np.arange(20) * 2 * np.pi / 20
    polygon = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert float(hubness(polygon, k=k)) == 0
    assert float(hubness(cone(k + 1, 3, np.random.default_rng(0)), k=k)) == 0


def test_a_common_direction_makes_hubs():
    """Noise on a sphere has no centre to be near to; off centre, the rows nearest to the common direction have."""
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=(1000, 128))
        shift = 11.3 * np.eye(128)[0]
        assert float(hubness(x)) < 0.6
        assert float(hubness(x + shift)) > 2


def test_too_few_rows_columns_and_neighbors():
    x = np.random.default_rng(0).normal(size=(10, 3))
    with pytest.raises(InputError, match="x has 10 rows; expected at least 11 for k = 10 neighbors, or a smaller k"):
        hubness(x)
    with pytest.raises(InputError, match="x has 1 column; expected at least 2"):
        hubness(x[:, :1], k=3)
    with pytest.raises(InputError, match="k = 0; expected a whole number from 1 on, of neighbors"):
        hubness(x, k=0)


def test_half_precision_is_measured_as_it_is():
    x = torch.from_numpy(cone(100, 20, np.random.default_rng(0))).half()
    assert float(hubness(x)) == pytest.approx(float(hubness(x.double())), rel=1e-12)


def test_equal_rows_have_no_neighbors_to_tell_apart():
    with pytest.raises(InputError, match="are equal"):
        hubness(np.ones((50, 3)))
