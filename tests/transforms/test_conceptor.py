"""Conceptors: Jaeger's formula, and the laws of their Boolean operations."""

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry.transforms import Conceptor, Pipeline
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


def test_combinations_are_those_of_the_correlations(sets):
    """C(R) ∨ C(Q) = C(R + Q), C ∧ B = (C⁻¹ + B⁻¹ − I)⁻¹, ¬C = I − C, ¬(A ∨ B) = ¬A ∧ ¬B (Jaeger 2014, section 3.9)."""
    r, q = map(correlation, sets)
    a, b = (Conceptor(2.0).fit(x) for x in sets)
    inverse = np.linalg.inv
    assert np.allclose((a | b).conceptor_, formula(r + q, 2.0), atol=1e-10)
    assert np.allclose(
        (a & b).conceptor_, inverse(inverse(a.conceptor_) + inverse(b.conceptor_) - np.eye(5)), atol=1e-10
    )
    assert np.allclose((~a).conceptor_, np.eye(5) - a.conceptor_, atol=1e-15)
    assert np.allclose((~(a | b)).conceptor_, (~a & ~b).conceptor_, atol=1e-12)
    assert np.allclose((~~a).conceptor_, a.conceptor_, atol=1e-15)


def test_aperture_scales_with_the_rows(sets):
    x, other = sets
    assert np.allclose(Conceptor(0.3).fit(10 * x).conceptor_, Conceptor(3.0).fit(x).conceptor_, atol=1e-12)
    turn = rotation(5, np.random.default_rng(1))
    turned = Conceptor().fit(x @ turn).transform(other @ turn)
    assert np.allclose(turned, Conceptor().fit(x).transform(other) @ turn, atol=1e-12)


def test_limits_of_the_aperture(sets):
    """α → ∞ removes the directions of the rows, α → 0 none; directions without rows stay as they are."""
    x = sets[0][:2]  # two directions of five
    u = np.linalg.svd(x, full_matrices=True)[2]
    one = Conceptor(1e7).fit(x[:1]).transform(x)
    assert np.abs(one[0]).max() < 1e-10 and np.allclose(one[1], x[1] - x[1] @ x[0] / (x[0] @ x[0]) * x[0])
    assert np.abs(Conceptor(1e7).fit(x).transform(x)).max() < 1e-10
    assert np.abs(Conceptor(1e-7).fit(x).transform(x) - x).max() < 1e-10
    assert np.allclose(Conceptor().fit(x).transform(u[2:]), u[2:], atol=1e-12)


def test_intersection_and_union_of_subspaces(sets):
    """For α → ∞ conceptors are projections, and the operations those of subspaces, whatever rank they have."""
    e = np.eye(5)
    a, b = Conceptor(1e5).fit(e[[0, 1]]), Conceptor(1e5).fit(e[[1, 2]])
    assert np.allclose((a & b).conceptor_, np.diag([0, 1, 0, 0, 0]), atol=1e-8)
    assert np.allclose((a | b).conceptor_, np.diag([1, 1, 1, 0, 0]), atol=1e-8)
    one = Conceptor(1e5).fit(e[:1])
    assert not (one & Conceptor().fit(e[1:2])).conceptor_.any()  # no direction in common
    zero = Conceptor().fit(np.zeros((3, 5)))
    assert not (zero & a).conceptor_.any() and np.allclose((zero | a).conceptor_, a.conceptor_, atol=1e-12)


def test_a_combination_is_a_fitted_transform(sets, tmp_path):
    image, text = sets
    fitted = Pipeline("conceptor(alpha=3)[pooled]").fit({"image": image, "text": text})
    pooled = np.concatenate(sets)
    assert np.allclose(fitted.transform({"text": text})["text"], Conceptor(3.0).fit(pooled).transform(text))
    both = Conceptor().fit(image) | Conceptor().fit(text)
    weights, shift = both.weights()
    assert np.allclose(both.transform(image), image @ weights + shift) and not shift.any()


def test_what_does_not_combine(sets):
    fitted = Conceptor().fit(sets[0])
    with pytest.raises(InputError, match="a conceptor combines with a conceptor, not with a int"):
        fitted & 3
    with pytest.raises(InputError, match="conceptors of 5 and of 3 dimensions do not combine"):
        fitted | Conceptor().fit(sets[0][:, :3])
