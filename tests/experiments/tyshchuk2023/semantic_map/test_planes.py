"""Maps by t-SNE are true to their rows; superposition and shared neighbors are those of plain definitions."""

import numpy as np
import pytest
from scipy.spatial import procrustes
from sklearn.neighbors import NearestNeighbors

from clip_geometry.registry import InputError
from clip_geometry_experiments.tyshchuk2023.semantic_map.planes import superpose, trustworthiness, tsne_plane


def cloud(n=60, d=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def groups(seed=0):
    """Three groups of 20 that lie far apart."""
    return cloud(60, 6, seed) + 12 * np.repeat(np.eye(6)[:3], 20, axis=0)


def turn(angle, mirror=1):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.diag([1, mirror])


# --- t-SNE


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_groups_stay_together_and_a_seed_repeats(dtype):
    rows = groups().astype(dtype)
    points = tsne_plane(rows, perplexity=10, seed=2**40)
    near = NearestNeighbors(n_neighbors=6).fit(points).kneighbors(points, return_distance=False)[:, 1:]
    assert (near // 20 == np.arange(60)[:, None] // 20).all()
    assert points.shape == (60, 2) and points.dtype == np.float64
    again = tsne_plane(rows, perplexity=10, seed=2**40)
    assert np.array_equal(points, again)
    other = tsne_plane(rows, perplexity=10, seed=1)
    assert not np.allclose(points, other)  # a seed is more than rounding


def test_a_map_is_far_truer_than_points_at_random():
    rows = groups(1)
    points = tsne_plane(rows, perplexity=10)
    true, chance = trustworthiness(rows, points, k=5), trustworthiness(rows, cloud(60, 2, 5), k=5)
    assert true > 0.9 and abs(chance - 0.5) < 0.1
    assert trustworthiness(rows[:, :2], rows[:, :2], k=29) == 1  # of n = 60, k = 29 is the last


@pytest.mark.parametrize("perplexity", [0.0, 60.0, 75.5])
def test_a_perplexity_outside_of_the_rows(perplexity):
    with pytest.raises(
        InputError, match=rf"t-SNE of 60 text rows has perplexity {perplexity:g}; expected .* below the"
    ):
        tsne_plane(cloud(), perplexity=perplexity, name="text")


def test_rows_that_have_no_map():
    with pytest.raises(InputError, match="all 9 rows of image are equal"):
        tsne_plane(np.ones((9, 4)), perplexity=2, name="image")
    with pytest.raises(InputError, match="1 column; expected at least 2"):
        tsne_plane(cloud(9, 1), perplexity=2)
    with pytest.raises(InputError, match="NaN"):
        tsne_plane(np.full((9, 4), np.nan), perplexity=2)


@pytest.mark.parametrize("k", [0, 30])
def test_too_many_neighbors_for_trustworthiness(k):
    with pytest.raises(
        InputError, match=rf"trustworthiness of 60 rows .* k = {k} neighbors; expected k from 1 to below"
    ):
        trustworthiness(cloud(), cloud(d=2), k=k)


# --- superposition


def test_a_turned_mirrored_moved_and_scaled_plane_coincides():
    target = cloud(30, 2, 1)
    source = 3.7 * target @ turn(0.8, mirror=-1) + [4, -9]
    every = np.arange(30)
    found = superpose(source, target, (every, every))
    assert found.disparity < 1e-12
    assert np.allclose(found.moved, found.kept, atol=1e-12)
    assert np.allclose(found.kept.mean(0), 0, atol=1e-12)
    assert np.square(found.kept).sum(1).mean() == pytest.approx(1)


@pytest.mark.parametrize("seed", range(3))
def test_disparity_is_that_of_scipy_and_symmetric(seed):
    rng = np.random.default_rng(seed)
    source, target = cloud(40, 2, seed), cloud(25, 2, seed + 9)
    i, j = rng.integers(0, 40, 33), rng.integers(0, 25, 33)  # rows with several pairs, and with none
    found = superpose(source, target, (i, j))
    assert found.disparity == pytest.approx(procrustes(target[j], source[i])[2], abs=1e-12)
    assert 0.5 < found.disparity < 1
    assert superpose(target, source, (j, i)).disparity == pytest.approx(found.disparity, abs=1e-12)
    assert found.moved.shape == (40, 2) and found.kept.shape == (25, 2)
