"""Conceptors: Jaeger's formula and its limits."""

import numpy as np
import pytest

from clip_geometry.transforms import Conceptor
from support.clouds import cone, rotation


def formula(r, alpha):
    """C = R (R + α⁻² I)⁻¹."""
    return r @ np.linalg.inv(r + alpha**-2 * np.eye(len(r)))


def correlation(x):
    return x.T @ x / len(x)


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return cone(40, 5, rng), cone(30, 5, rng)


@pytest.mark.parametrize("alpha", [0.1, 1.0, 2.0, 30.0])
def test_the_formula(sets, alpha):
    x, other = sets
    fitted = Conceptor(alpha).fit(x)
    c = formula(correlation(x), alpha)
    assert np.allclose(fitted.conceptor_, c, atol=1e-12)
    assert np.allclose(fitted.transform(other), other - other @ c, atol=1e-12)


def test_limits_of_the_aperture(sets):
    """α → ∞ removes the directions of the rows, α → 0 none; directions without rows stay as they are."""
    x = sets[0][:2]  # two directions of five
    u = np.linalg.svd(x, full_matrices=True)[2]
    one = Conceptor(1e7).fit(x[:1]).transform(x)
    assert np.abs(one[0]).max() < 1e-10 and np.allclose(one[1], x[1] - x[1] @ x[0] / (x[0] @ x[0]) * x[0])
    assert np.abs(Conceptor(1e7).fit(x).transform(x)).max() < 1e-10
    assert np.abs(Conceptor(1e-7).fit(x).transform(x) - x).max() < 1e-10
    assert np.allclose(Conceptor().fit(x).transform(u[2:]), u[2:], atol=1e-12)


def test_aperture_scales_with_the_rows(sets):
    x, other = sets
    assert np.allclose(Conceptor(0.3).fit(10 * x).conceptor_, Conceptor(3.0).fit(x).conceptor_, atol=1e-12)
    turn = rotation(5, np.random.default_rng(1))
    turned = Conceptor().fit(x @ turn).transform(other @ turn)
    assert np.allclose(turned, Conceptor().fit(x).transform(other) @ turn, atol=1e-12)
