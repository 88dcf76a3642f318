import mpmath
import numpy as np
import pytest
import torch
from scipy.stats import vonmises_fisher

from clip_geometry.geometry import vmf_concentration
from clip_geometry.geometry.distributions.concentration import _bessel_ratio
from clip_geometry.registry import InputError

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("d", "kappa"), [(3, 0.5), (3, 40.0), (10, 8.0), (60, 200.0)])
def test_agrees_with_scipy_and_recovers_the_concentration(seed, d, kappa):
    x = vonmises_fisher(np.eye(d)[0], kappa, seed=seed).rvs(4000)
    found = vmf_concentration(x)
    assert found == pytest.approx(vonmises_fisher.fit(x)[1], rel=1e-6)
    assert found == pytest.approx(kappa, rel=0.2 if kappa < 1 else 0.05)


@pytest.mark.parametrize("d", [2, 3, 64, 512])
@pytest.mark.parametrize("kappa", [1e-6, 0.1, 30.0, 1e5, 9e6, 1.1e7, 1e12])
def test_the_ratio_of_bessel_functions(d, kappa):
    with mpmath.workdps(50):
        ratio = mpmath.besseli(mpmath.mpf(d) / 2, kappa) / mpmath.besseli(mpmath.mpf(d) / 2 - 1, kappa)
        slope = 1 - ratio**2 - (d - 1) * ratio / mpmath.mpf(kappa)
        expected = [float(each) for each in (ratio, 1 - ratio, slope)]
    assert _bessel_ratio(kappa, d)[:2] == pytest.approx(expected[:2], rel=1e-11)
    assert _bessel_ratio(kappa, d)[2] == pytest.approx(expected[2], rel=1e-7)


@pytest.mark.parametrize("width", [1e-7, 1e-4, 1e-2])
def test_a_narrow_cone_has_the_concentration_of_a_gaussian(width):
    """Of variance width² in each of d − 1 directions: κ = 1/width²."""
    rng = np.random.default_rng(0)
    x = np.eye(8)[0] + width * np.concatenate([np.zeros((5000, 1)), rng.normal(size=(5000, 7))], axis=1)
    assert vmf_concentration(x) == pytest.approx(width**-2, rel=0.03)


def test_directions_that_cancel_have_none():
    even = np.concatenate([np.eye(3), -np.eye(3)])
    assert vmf_concentration(even) == 0
    almost = even + 1e-9 * np.eye(3)[[0] * 6]  # the mean unit row is 2e-9/3 long in one of three dimensions
    assert vmf_concentration(almost) == pytest.approx(3 * 2 / 3 * 1e-9, rel=1e-6)


@pytest.mark.parametrize("offset", [0.0, 0.4, 3.0])
def test_gradients(offset):
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + offset
    assert torch.autograd.gradcheck(vmf_concentration, (x.requires_grad_(),), rtol=1e-4)


def test_one_direction_is_an_error():
    with pytest.raises(InputError, match="all 5 rows have one direction, whose concentration is infinite"):
        vmf_concentration(np.outer([1.0, 2, 3, 4, 5], [0.3, 0.7]))
