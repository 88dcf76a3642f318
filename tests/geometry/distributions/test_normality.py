import math

import numpy as np
import pytest
import torch

from clip_geometry.geometry import sliced_normality
from clip_geometry.geometry.distributions.normality import epps_pulley

SEEDS = range(3)
GAUSSIAN = math.sqrt(2 * math.pi) * (1 - 1 / math.sqrt(3))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_quadrature_is_the_integral(seed):
    """In closed form: the integral of each product of exponentials is that of a Gaussian (Epps & Pulley 1983)."""
    values = np.random.default_rng(seed).normal(size=40) * 1.1 + 0.3
    apart = np.exp(-((values[:, None] - values) ** 2) / 2).sum() / 40
    exact = math.sqrt(2 * math.pi) * (apart - math.sqrt(2) * np.exp(-(values**2) / 4).sum() + 40 / math.sqrt(3))
    assert float(epps_pulley(torch.from_numpy(values)[:, None])) == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize("n", [20, 500])
def test_the_mean_of_gaussian_values_is_the_same_for_any_n(n):
    values = torch.randn(n, 4000, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    assert float(epps_pulley(values).mean()) == pytest.approx(GAUSSIAN, rel=0.06)


def test_isotropic_rows_have_less_and_others_more():
    x = np.random.default_rng(0).normal(size=(1000, 10))
    assert 0.2 < sliced_normality(x) < GAUSSIAN
    assert sliced_normality(x * [4, *[1] * 9]) > 20
    two = x + 3 * np.sign(np.random.default_rng(1).normal(size=(1000, 1))) * np.ones(10)  # two clusters far apart
    assert sliced_normality(two) > 20


def test_directions_are_those_of_the_seed():
    x = np.random.default_rng(0).normal(size=(50, 6)) * np.arange(1, 7)
    assert sliced_normality(x, seed=1) == sliced_normality(x, seed=1) != sliced_normality(x, seed=2)
    many = [sliced_normality(x, directions=2000, seed=seed) for seed in SEEDS]
    assert np.ptp(many) < 0.1 * np.mean(many)


def test_gradients():
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda rows: sliced_normality(rows, directions=5), (x,))
