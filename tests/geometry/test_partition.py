import math

import numpy as np
import pytest
import torch

from clip_geometry.geometry import partition, partition_isotropy
from clip_geometry.geometry.statistics import partition as statistic
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import blocks
from support.clouds import cone, rotation

CONVENTIONS = ("invariant", "canonical", "rows")


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


@pytest.mark.parametrize("seed", range(5))
def test_unit_rows_are_bounded_by_e_to_the_minus_2(seed):
    x = cone(50, 4, np.random.default_rng(seed), offset=20.0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert math.exp(-2) <= float(partition_isotropy(x).i1) < 1


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
    module = partition if convention == "rows" else statistic
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
    monkeypatch.setattr("clip_geometry.geometry.statistics.triangle.blocks", lambda rows: blocks(rows, 7))
    assert torch.allclose((statistic.right_singular_vectors(x).T @ whole).abs(), torch.eye(5).double(), atol=1e-12)


def test_unknown_convention():
    with pytest.raises(InputError, match="convention 'columns' is unknown; known are"):
        partition_isotropy(np.eye(3), convention="columns")  # pyright: ignore
