import numpy as np
import ot
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.stats import energy_distance as of_one_column

from clip_geometry.geometry import (
    energy_distance,
    gap_shift_share,
    modality_gap,
    relative_modality_gap,
    sliced_wasserstein,
)
from clip_geometry.geometry.statistics.distributions import random_directions
from clip_geometry.registry import InputError
from support.clouds import cone, rotation


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
    result = modality_gap(x, x + 1e-6 * np.linalg.norm(mean) * across, metric="cosine")
    assert result == pytest.approx(0.5e-12, rel=1e-3)
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
    with pytest.raises(InputError, match="image and text are the same set of rows, so there is no gap to divide"):
        gap_shift_share(x + 100, x[::-1] + 100)


SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shift_of_length_l_is_a_gap_of_l(seed):
    rng = np.random.default_rng(seed)
    x, shift = cone(30, 5, rng), rng.normal(size=5)
    assert float(modality_gap(x, x + shift)) == pytest.approx(np.linalg.norm(shift), rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_coinciding_pairs_have_no_relative_gap_and_random_ones_half(seed):
    rng = np.random.default_rng(seed)
    x = cone(400, 8, rng)
    assert float(relative_modality_gap(x, 2.5 * x)) == pytest.approx(0, abs=1e-12)
    assert float(relative_modality_gap(x, x[rng.permutation(400)])) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_one_column_it_is_the_square_of_scipys(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(40, 1)), 2 * rng.exponential(size=(31, 1))
    assert energy_distance(x, y) == pytest.approx(of_one_column(x[:, 0], y[:, 0]) ** 2, rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_centering_takes_a_shift_away_and_nothing_else(seed):
    rng = np.random.default_rng(seed)
    x = cone(50, 4, rng)
    shift = 3 * rng.normal(size=4)
    assert energy_distance(x, x[::-1] + shift) > 0.5
    assert energy_distance(x, x[::-1] + shift, center=True) == pytest.approx(0, abs=1e-12)
    wider = energy_distance(x, 2 * (x - x.mean(0)), center=True)
    assert wider > 0.1
    assert energy_distance(x, 2 * x + shift, center=True) == pytest.approx(wider, rel=1e-9)


def test_far_sets_are_twice_their_distance_apart():
    x, y = np.random.default_rng(0).normal(size=(2, 30, 3))
    assert energy_distance(x, y + 1e6) == pytest.approx(2e6 * np.sqrt(3), rel=1e-5)


@pytest.mark.parametrize(("n", "m"), [(40, 40), (40, 31), (7, 60)])
def test_it_is_pots_along_the_same_directions_but_for_the_means(n, m):
    """Whose part POT takes along the same directions, and we over all of them."""
    rng = np.random.default_rng(n * m)
    x, y = cone(n, 5, rng), cone(m, 5, rng)
    axes = random_directions(5, 30, 7).numpy()
    theirs = ot.sliced_wasserstein_distance(x, y, projections=axes, p=2) ** 2
    gap = x.mean(0) - y.mean(0)
    theirs += (gap**2).sum() / 5 - ((gap @ axes) ** 2).mean()
    assert sliced_wasserstein(x, y, directions=30, seed=7) ** 2 == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shift_alone_is_the_gap_over_the_root_of_d(seed):
    rng = np.random.default_rng(seed)
    x, shift = cone(30, 5, rng), rng.normal(size=5)
    assert sliced_wasserstein(x, x[::-1] + shift) == pytest.approx(np.linalg.norm(shift) / np.sqrt(5), rel=1e-9)
    assert sliced_wasserstein(x, x[::-1] + shift, center=True) == pytest.approx(0, abs=1e-12)
    assert gap_shift_share(x, x[::-1] + shift) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_parts_make_the_whole(seed):
    rng = np.random.default_rng(seed)
    x, y = cone(30, 5, rng), 1.7 * cone(44, 5, rng)
    whole, rest = sliced_wasserstein(x, y) ** 2, sliced_wasserstein(x, y, center=True) ** 2
    assert whole - rest == pytest.approx(modality_gap(x, y) ** 2 / 5, rel=1e-9)
    assert gap_shift_share(x, y) == pytest.approx(1 - rest / whole, rel=1e-9)
    assert gap_shift_share(x - x.mean(0), y - y.mean(0)) == pytest.approx(0, abs=1e-12)


def test_a_rotation_changes_it_by_the_draw_of_the_directions_only():
    rng = np.random.default_rng(0)
    x, y = cone(200, 6, rng), 1.5 * cone(200, 6, rng)
    q = rotation(6, rng)
    result = [sliced_wasserstein(x @ q, y @ q, center=True, directions=count) for count in (6, 12, 6000)]
    expected = sliced_wasserstein(x, y, center=True, directions=6000)
    assert result[2] == pytest.approx(expected, rel=0.01)
    assert result[0] != pytest.approx(expected, rel=1e-6)
