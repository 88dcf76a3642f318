import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.stats import energy_distance as of_one_column

from clip_geometry.geometry import energy_distance, standard_error
from clip_geometry.registry import InputError
from support.clouds import cone

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_one_column_it_is_the_square_of_scipys(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(40, 1)), 2 * rng.exponential(size=(31, 1))
    assert energy_distance(x, y) == pytest.approx(of_one_column(x[:, 0], y[:, 0]) ** 2, rel=1e-12)


def test_several_blocks_are_one_sum():
    rng = np.random.default_rng(0)
    x, y = cone(1500, 3, rng), cone(1100, 3, rng)
    expected = 2 * cdist(x, y).mean() - cdist(x, x).mean() - cdist(y, y).mean()
    assert energy_distance(x, y) == pytest.approx(expected, rel=1e-9)


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


@pytest.mark.parametrize("n", [50, 400])
def test_two_samples_of_one_distribution_have_their_mean_distance_over_n(n):
    """A row and itself are pairs, too: E = mean distance · (1/n + 1/m)."""
    rng = np.random.default_rng(0)
    found = [energy_distance(*rng.normal(size=(2, n, 5))) for _ in range(20)]
    mean_distance = cdist(*rng.normal(size=(2, 500, 5))).mean()
    assert np.mean(found) == pytest.approx(mean_distance * 2 / n, rel=0.1)


@pytest.mark.parametrize("center", [False, True])
def test_gradients(center):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    y = torch.randn(5, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: energy_distance(a, b, center=center), (x, y))


def test_the_error_is_that_of_the_subsets():
    rng = np.random.default_rng(0)
    x, y = cone(60, 4, rng), cone(45, 4, rng)
    assert standard_error("energy_distance", x, y) == pytest.approx(standard_error(energy_distance, x, y), rel=1e-9)


def test_sets_of_one_space():
    with pytest.raises(InputError, match="image has dimension 3 and text has 4"):
        energy_distance(np.ones((5, 3)), np.ones((5, 4)))
