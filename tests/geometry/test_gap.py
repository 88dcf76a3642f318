import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from clip_geometry.geometry import (
    energy_distance,
    gap_shift_share,
    modality_gap,
    relative_modality_gap,
    sliced_wasserstein,
)
from clip_geometry.geometry.statistics.distributions import random_directions
from clip_geometry.registry import InputError
from support.clouds import cone


def test_tight_and_far_modalities_have_relative_gap_towards_1():
    x = np.array([[1.0, 1e-4, 0], [1.0, -1e-4, 0]])
    y = np.array([[-1.0, 0, 1e-4], [-1.0, 0, -1e-4]])
    m, within = 1.0, 1e-8  # D of opposite rows; D = (1 − cos)/2 of rows at angle 2e-4
    assert 1 - float(relative_modality_gap(x, y)) == pytest.approx(within / (m + within), rel=1e-6)


def test_nothing_to_compare_is_an_error():
    for seed in range(20):
        x = np.tile(np.random.default_rng(seed).normal(size=5), (7, 1))  # unit length is then a rounded one
        with pytest.raises(InputError, match="0/0"):
            relative_modality_gap(x, 3 * x)


def test_the_cosine_gap_is_exact_near_0_and_refuses_a_mean_that_centering_left():
    x = cone(30, 5, np.random.default_rng(0))
    mean = x.mean(0)
    across = np.linalg.svd(mean[None])[2][1]  # of unit length, orthogonal to the mean
    found = modality_gap(x, x + 1e-6 * np.linalg.norm(mean) * across, metric="cosine")
    assert found == pytest.approx(0.5e-12, rel=1e-3)
    for dtype in (np.float32, np.float64):
        with pytest.raises(InputError, match="the mean of text is zero, as after centering, and has no direction"):
            modality_gap(x, (x - mean).astype(dtype), metric="cosine")


def test_several_blocks_are_one_sum():
    rng = np.random.default_rng(0)
    x, y = cone(1500, 3, rng), cone(1100, 3, rng)
    expected = 2 * cdist(x, y).mean() - cdist(x, x).mean() - cdist(y, y).mean()
    assert energy_distance(x, y) == pytest.approx(expected, rel=1e-9)


def test_directions_are_orthonormal_as_far_as_they_can_be():
    axes = random_directions(4, 10, 0)
    assert axes.shape == (4, 10)
    assert torch.allclose(axes.norm(dim=0), torch.ones(10, dtype=torch.float64))
    assert torch.allclose(axes[:, 4:8].T @ axes[:, 4:8], torch.eye(4, dtype=torch.float64), atol=1e-12)
    assert not torch.equal(random_directions(4, 10, 1), axes)


def test_equal_sets_have_no_gap_to_divide():
    x = cone(30, 5, np.random.default_rng(0))
    assert sliced_wasserstein(x, x[::-1]) == pytest.approx(0, abs=1e-12)
    with pytest.raises(InputError, match="image and text are the same set of rows; there is no gap to divide"):
        gap_shift_share(x + 100, x[::-1] + 100)
