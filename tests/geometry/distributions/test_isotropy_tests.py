import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest

from clip_geometry.geometry import bingham_test, rayleigh_test, sphericity_test
from clip_geometry.registry import InputError

TESTS = [rayleigh_test, bingham_test, sphericity_test]


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(("n", "d"), [(10, 3), (20, 100), (100, 20), (12, 300), (200, 2)])
def test_p_values_are_uniform_under_isotropy(test, n, d):
    """Kolmogorov-Smirnov: the smallest p of fifteen would fall below 7e-5 once in a thousand seeds."""
    generator = torch.Generator().manual_seed(1)
    found = [test(torch.randn(n, d, generator=generator, dtype=torch.float64)) for _ in range(400)]
    assert kstest([float(each.p_value) for each in found], "uniform").pvalue > 7e-5
    z = torch.stack([each.z for each in found])
    assert abs(float(z.mean())) < 4 / math.sqrt(400)
    assert float(z.std()) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(("n", "d"), [(2000, 3), (3000, 6)])
def test_for_many_rows_they_are_the_classical_tests(n, d):
    """χ² of the textbook statistics (Mardia & Jupp 10.4.5 and 10.7.1; John's), at a moderate effect."""
    rng = np.random.default_rng(d)
    x = rng.normal(size=(n, d)) * (1 + 0.04 * np.arange(d)) + 0.02
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    rayleigh = chi2.sf(d * n * (u.mean(0) ** 2).sum(), d)
    moments = u.T @ u / n
    bingham = chi2.sf(n * d * (d + 2) / 2 * (np.trace(moments @ moments) - 1 / d), (d - 1) * (d + 2) / 2)
    share = np.cov(x.T) / np.trace(np.cov(x.T)) * d
    john = chi2.sf((n - 1) / 2 * ((share - np.eye(d)) ** 2).sum(), d * (d + 1) / 2 - 1)
    for test, classical in ((rayleigh_test, rayleigh), (bingham_test, bingham), (sphericity_test, john)):
        assert test(x).p_value == pytest.approx(classical, rel=0.03, abs=1e-6)


def test_each_sees_what_it_is_for():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(300, 10))
    shifted, stretched = noise + 0.3, noise * np.array([2.0, *[1] * 9])
    one, other = rayleigh_test(shifted), rayleigh_test(stretched)
    assert one.p_value < 1e-10 and other.p_value > 0.01
    assert bingham_test(stretched).p_value < 1e-10 and bingham_test(noise).p_value > 0.01
    assert sphericity_test(stretched).p_value < 1e-10 and sphericity_test(shifted).p_value > 0.01


def test_both_forms_of_the_product_agree():
    """Of n < d and n > d rows; appended zeros are no part of the statistic, but of d."""
    x = np.random.default_rng(0).normal(size=(30, 30))
    half = bingham_test(x[:, :29]), bingham_test(x[:29])
    assert all(0 < each.p_value < 1 for each in half)


def test_p_values_far_out_are_small_and_not_negative():
    x = np.random.default_rng(0).normal(size=(400, 5)) + 5
    assert 0 <= rayleigh_test(x).p_value < 1e-100
    even = np.concatenate([np.eye(6), -np.eye(6)])
    assert rayleigh_test(even).p_value == pytest.approx(1, abs=0.01)
    assert rayleigh_test(even).z == pytest.approx(-1 / math.sqrt(2 * 11 / 12 / 6), rel=1e-12)


@pytest.mark.parametrize("test", TESTS)
def test_gradients(test):
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda rows: test(rows).z, (x.requires_grad_(),))


def test_unusable_rows():
    with pytest.raises(InputError, match="all 5 rows of x are equal"):
        sphericity_test(np.ones((5, 3)))
    for test in TESTS:
        with pytest.raises(InputError, match="2 rows; expected at least 3"):
            test(np.ones((2, 3)))
