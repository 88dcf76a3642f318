"""Least squares: numpy's pseudo-inverse as oracle, and of several solutions the one of minimum norm."""

import numpy as np
import pytest

from clip_geometry.transforms import LeastSquares, RankWarning
from support.clouds import cone


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_full_rank_is_the_normal_equations(rng):
    source, target = cone(40, 5, rng), cone(40, 7, rng)
    result = LeastSquares().fit(source, target)
    expected = np.linalg.solve(source.T @ source, source.T @ target)
    assert np.allclose(result.W_, expected, rtol=1e-9, atol=1e-12)
    assert (result.rank_, result.fitted_on_, result.W_.shape) == (5, 40, (5, 7))
    assert result.rcond_ == 40 * np.finfo(float).eps
    residual = result.transform(source) - target
    assert np.abs(source.T @ residual).max() < 1e-10  # orthogonal to the source: no better map


@pytest.mark.parametrize("n", [3, 7])
def test_fewer_rows_than_dimensions_give_the_minimum_norm(rng, n):
    source, target = cone(n, 8, rng), cone(n, 4, rng)
    with pytest.warns(RankWarning, match=f"source rows of rank {n} in dimension 8.*the one of minimum norm"):
        result = LeastSquares().fit(source, target)
    assert np.allclose(result.W_, np.linalg.pinv(source) @ target, rtol=1e-9, atol=1e-12)
    assert np.allclose(result.transform(source), target, atol=1e-10)
    free = np.linalg.svd(source)[2][n:]  # what no source row has
    assert np.abs(free @ result.W_).max() < 1e-12


def test_rcond_says_what_counts_as_zero(rng):
    """Singular values 1, …, 1e-3, 1e-7: the last is noise for rcond 1e-5 and a direction by default."""
    u, v = np.linalg.qr(rng.normal(size=(30, 4)))[0], np.linalg.qr(rng.normal(size=(4, 4)))[0]
    source, target = u * [1, 0.1, 1e-3, 1e-7] @ v.T, cone(30, 3, rng)
    assert LeastSquares().fit(source, target).rank_ == 4
    with pytest.warns(RankWarning, match="rank 3 in dimension 4"):
        result = LeastSquares(rcond=1e-5).fit(source, target)
    assert (result.rank_, result.rcond_) == (3, 1e-5)
    assert np.allclose(result.W_, np.linalg.pinv(source, rcond=1e-5) @ target, rtol=1e-9)


def test_from_class_prompts_to_images_it_is_the_nearest_class_mean(rng):
    """Each of k ≤ d independent prompts goes to the mean of its class, whatever the prompts say."""
    labels = np.arange(60) % 5
    image, prompts = cone(60, 8, rng), cone(5, 8, rng)
    means = np.stack([image[labels == k].mean(0) for k in range(5)])
    for texts in (prompts, rng.normal(size=(5, 8)), np.eye(5, 8)):
        with pytest.warns(RankWarning):
            result = LeastSquares().fit(texts[labels], image).transform(texts)
        assert np.allclose(result, means, atol=1e-10)
