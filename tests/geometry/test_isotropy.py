import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest

from clip_geometry.geometry import bingham_test, isotropy, partition_isotropy, rayleigh_test, sphericity_test
from clip_geometry.geometry.statistics import spectrum as statistic
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import blocks
from support.clouds import cone, rotation

CONVENTIONS = ("invariant", "canonical", "rows")


def test_published_convention_only_sees_the_mean():
    """`rows` is a basis unrelated to the data: I2 is ‖mean‖/√d to first order, whatever the spectrum (README A.1)."""
    rng = np.random.default_rng(0)
    x = cone(4000, 64, rng)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    expected = np.linalg.norm(x.mean(0)) / math.sqrt(64)
    # the basis is random-like: ‖mean‖²'s share of 64 directions fluctuates by √(2/64)/2 = 9 %
    assert float(partition_isotropy(x, convention="rows").i2) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_signs_of_the_eigenvectors_do_not_matter(convention, seed, monkeypatch):
    x = cone(60, 6, np.random.default_rng(seed))
    before = partition_isotropy(x, convention=convention)
    name = "right_singular_vectors" if convention == "rows" else "_eigenvectors"
    module = isotropy if convention == "rows" else statistic
    vectors_of = getattr(module, name)
    signs = torch.from_numpy(np.random.default_rng(seed).choice([-1.0, 1.0], size=6))
    assert 0 < (signs < 0).sum() < 6
    flipped = []
    monkeypatch.setattr(module, name, lambda rows: flipped.append(1) or vectors_of(rows) * signs)
    after = partition_isotropy(x, convention=convention)
    assert flipped
    assert [float(v) for v in after] == pytest.approx([float(v) for v in before], rel=1e-12)


def test_large_rows_do_not_overflow():
    i1, i2 = partition_isotropy(1e5 * cone(30, 3, np.random.default_rng(0)))
    assert 0 <= float(i1) < 1e-12
    assert np.isfinite(float(i2))


def test_blocks_do_not_change_the_value(monkeypatch):
    x = cone(101, 5, np.random.default_rng(0))
    whole = partition_isotropy(x)
    blocks = statistic.blocks
    monkeypatch.setattr(statistic, "blocks", lambda rows: blocks(rows, 7))
    assert [float(v) for v in partition_isotropy(x)] == pytest.approx([float(v) for v in whole], rel=1e-12)


def test_singular_vectors_are_the_eigenvectors_and_blocks_do_not_change_them(monkeypatch):
    x = torch.from_numpy(cone(101, 5, np.random.default_rng(0)))
    whole = statistic.right_singular_vectors(x)
    overlap = (whole.T @ statistic._eigenvectors(x)).abs()
    assert torch.allclose(overlap, torch.eye(5).double(), atol=1e-12)
    monkeypatch.setattr(statistic, "blocks", lambda rows: blocks(rows, 7))
    assert torch.allclose((statistic.right_singular_vectors(x).T @ whole).abs(), torch.eye(5).double(), atol=1e-12)


def test_unknown_convention():
    with pytest.raises(InputError, match="convention 'columns' is unknown; known are"):
        partition_isotropy(np.eye(3), convention="columns")  # pyright: ignore


TESTS = [rayleigh_test, bingham_test, sphericity_test]


@pytest.mark.usefixtures("no_type_checker")
@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(("n", "d"), [(10, 3), (20, 100), (100, 20), (12, 300), (200, 2)])
def test_p_values_are_uniform_under_isotropy(test, n, d):
    """Kolmogorov-Smirnov: the smallest p of fifteen would fall below 7e-5 once in a thousand seeds."""
    generator = torch.Generator().manual_seed(1)
    result = [test(torch.randn(n, d, generator=generator, dtype=torch.float64)) for _ in range(400)]
    assert kstest([float(each.p_value) for each in result], "uniform").pvalue > 7e-5
    z = torch.stack([each.z for each in result])
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


def test_p_values_far_out_are_small_and_not_negative():
    x = np.random.default_rng(0).normal(size=(400, 5)) + 5
    assert 0 <= rayleigh_test(x).p_value < 1e-100
    even = np.concatenate([np.eye(6), -np.eye(6)])
    assert rayleigh_test(even).p_value == pytest.approx(1, abs=0.01)
    assert rayleigh_test(even).z == pytest.approx(-1 / math.sqrt(2 * 11 / 12 / 6), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_unit_rows_are_bounded_by_e_to_the_minus_2(seed):
    x = cone(50, 4, np.random.default_rng(seed), offset=20.0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert math.exp(-2) <= float(partition_isotropy(x).i1) < 1


@pytest.mark.parametrize("seed", range(3))
def test_one_axis_gives_the_closed_form(seed):
    """Rows ±a e: Z is n cosh(a) along e and n elsewhere, so I1 = 1/cosh(a)."""
    d, a = 5, 1.3 + seed
    direction = rotation(d, np.random.default_rng(seed))[0]
    x = np.array([1, -1, 1, -1])[:, None] * a * direction
    i1, i2 = partition_isotropy(x)
    z = np.array([math.cosh(a)] * 2 + [1] * (2 * d - 2))
    assert float(i1) == pytest.approx(1 / math.cosh(a), rel=1e-12)
    assert float(i2) == pytest.approx(z.std() / z.mean(), rel=1e-10)


def test_a_cross_polytope_is_perfectly_isotropic():
    x = np.concatenate([np.eye(4), -np.eye(4)])
    i1, i2 = partition_isotropy(x)
    assert float(i1) == pytest.approx(1, abs=1e-12)
    assert float(i2) == pytest.approx(0, abs=1e-12)


def test_each_sees_what_it_is_for():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(300, 10))
    shifted, stretched = noise + 0.3, noise * np.array([2.0, *[1] * 9])
    one, other = rayleigh_test(shifted), rayleigh_test(stretched)
    assert one.p_value < 1e-10 and other.p_value > 0.01
    assert bingham_test(stretched).p_value < 1e-10 and bingham_test(noise).p_value > 0.01
    assert sphericity_test(stretched).p_value < 1e-10 and sphericity_test(shifted).p_value > 0.01
