import numpy as np
import pytest
import torch

from clip_geometry import Moments
from clip_geometry.geometry import (
    alpha_req,
    coordinate_spread,
    coordinate_std,
    nesum,
    singular_values,
    spectral_discrepancy,
)
from clip_geometry.registry import InputError
from support.clouds import cone, rotation


def with_variances(variances, n, rng):
    """Rows whose covariance has exactly these eigenvalues."""
    d = len(variances)
    basis = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, d))]))[0][:, 1:]
    return basis * np.sqrt(variances) @ rotation(d, rng) + rng.normal(size=d)


def test_only_the_chosen_ranks_count():
    variances = np.arange(1, 31.0) ** -1
    variances[[0, 29]] = 5, 1e-3
    x = with_variances(variances, 80, np.random.default_rng(0))
    assert alpha_req(x, first=2, last=29) == pytest.approx(1, rel=1e-9)
    assert alpha_req(x) > 1.1
    assert alpha_req(x, first=2, last=1000) == alpha_req(x, first=2)


def test_agrees_with_the_authors_fit():
    """stringer_get_powerlaw of the α-ReQ code, whose ranks count from 0, in other words."""
    values = np.sort(np.random.default_rng(0).gamma(1, size=40))[::-1]
    ranks = np.arange(11, 31)
    y, at = np.log(values[ranks]), ranks + 1
    x = np.stack([-np.log(at), np.ones(20)], axis=1)
    w = 1 / at[:, None]
    expected = np.linalg.solve(x.T @ (x * w), (w * x).T @ y)[0]
    rows = with_variances(values, 90, np.random.default_rng(1))
    assert alpha_req(rows, first=12, last=31) == pytest.approx(expected, rel=1e-9)


def test_too_few_eigenvalues():
    line = np.outer(np.arange(6.0), [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="1 eigenvalues are not zero; expected at least two of them from rank 1 on"):
        alpha_req(line)
    with pytest.raises(InputError, match="last = 3; expected a whole number from 4"):
        alpha_req(np.random.default_rng(0).normal(size=(9, 8)), first=3, last=3)
    for function in (alpha_req, nesum):
        with pytest.raises(InputError, match="all 5 rows of x are equal"):
            function(np.ones((5, 3)))


def test_coordinate_std_is_numpys():
    x = cone(40, 6, np.random.default_rng(0)) + 1000
    assert np.allclose(coordinate_std(x), x.std(0), rtol=1e-12)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("shape", [(30, 6), (5, 12)])
def test_singular_values_are_scipys(center, shape):
    from scipy.linalg import svdvals

    x = cone(*shape, np.random.default_rng(0))
    assert np.allclose(singular_values(x, center=center), svdvals(x - center * x.mean(0)), rtol=1e-10, atol=1e-10)


SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("alpha", [0.4, 1.0, 2.5])
def test_a_power_law_has_its_exponent_over_any_ranks(seed, alpha):
    x = with_variances(np.arange(1, 31.0) ** -alpha, 80, np.random.default_rng(seed))
    assert alpha_req(x) == pytest.approx(alpha, rel=1e-9)
    assert alpha_req(x, first=5, last=20) == pytest.approx(alpha, rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_nesum_of_known_variances(seed):
    variances = np.array([4.0, 3, 3, 1, 0.5])
    x = with_variances(variances, 30, np.random.default_rng(seed))
    assert nesum(x) == pytest.approx(11.5 / 4, rel=1e-12)
    assert float(nesum(Moments.of(torch.from_numpy(x)))) == pytest.approx(11.5 / 4, rel=1e-12)


def test_one_rogue_dimension_has_the_largest_spread_there_is():
    x = np.zeros((10, 5))
    x[:, 2] = np.arange(10)
    assert float(coordinate_spread(x)) == pytest.approx(np.sqrt(5 - 1))


@pytest.mark.parametrize("seed", range(3))
def test_a_set_turned_shifted_and_scaled_has_its_spectrum(seed):
    rng = np.random.default_rng(seed)
    x = cone(40, 6, rng)
    assert spectral_discrepancy(x, 3 * x @ rotation(6, rng) + rng.normal(size=6)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_k_directions_of_equal_variance_against_d(k):
    """½(k(1/k − 1/8) + (8 − k)/8) = 1 − k/8."""
    square = np.concatenate([np.eye(8), -np.eye(8)])
    few = np.concatenate([np.eye(k, 8), -np.eye(k, 8)])
    assert spectral_discrepancy(square, few) == pytest.approx(1 - k / 8, abs=1e-12)
    assert spectral_discrepancy(square, few[:, :k]) == pytest.approx(1 - k / 8, abs=1e-12)  # of another dimension
