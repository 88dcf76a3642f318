import numpy as np
import pytest
import torch

from clip_geometry.geometry import average_cosine, matching_cosine, min_pairwise_cosine, random_cosine
from support.clouds import cone


def test_orthogonal_and_opposite_rows():
    assert float(average_cosine(np.eye(5))) == pytest.approx(0, abs=1e-12)
    assert float(average_cosine(np.array([[1.0, 0], [-3.0, 0]]))) == pytest.approx(-1)
    # a regular simplex: the most negative average there is, −1/(n − 1)
    assert float(average_cosine(np.eye(5) - 0.2)) == pytest.approx(-1 / 4)


def test_a_tight_cone_keeps_its_digits():
    """Two rows at angle ε: 1 − cos = ε²/2 = 5e-15 survives, where ‖Σu‖² − n would leave noise of 1e-16·n²."""
    angle = 1e-7
    x = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    assert 1 - float(average_cosine(x)) == pytest.approx(angle**2 / 2, rel=0.03)


@pytest.mark.parametrize("block_size", [1, 7, 1000])
def test_minimum_does_not_depend_on_the_block(block_size):
    x = cone(40, 5, np.random.default_rng(0))
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert float(min_pairwise_cosine(x, block_size=block_size)) == pytest.approx((u @ u.T).min(), abs=1e-12)


def test_matching_and_random_cosines_split_the_cosine_matrix():
    rng = np.random.default_rng(1)
    x, y = cone(9, 4, rng), cone(9, 4, rng)
    u, v = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))
    total = 9 * float(matching_cosine(x, y)) + 72 * float(random_cosine(x, y))
    assert total == pytest.approx((u @ v.T).sum(), rel=1e-12)


def test_one_pair_is_enough_to_match():
    assert float(matching_cosine(np.array([[3.0, 4.0]]), np.array([[5.0, 0.0]]))) == pytest.approx(0.6)


def test_rows_of_any_scale_have_a_direction():
    x = np.array([[3.0, 4.0], [5.0, 0.0]])
    assert float(average_cosine(1e-130 * x)) == pytest.approx(0.6)
    assert float(average_cosine(1e130 * x)) == pytest.approx(0.6)


def test_gradients():
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(average_cosine, (x,))


def test_equal_rows_stay_within_the_range():
    x = np.tile(np.random.default_rng(0).normal(size=7), (50, 1))
    for score in (average_cosine(x), min_pairwise_cosine(x), matching_cosine(x, 3 * x), random_cosine(x, x)):
        assert 1 - 1e-12 < float(score) <= 1


def test_minimum_inside_one_block_is_seen():
    x = np.abs(cone(40, 4, np.random.default_rng(0))) + 1
    x[1] = -x[0]
    assert float(min_pairwise_cosine(x, block_size=8)) == pytest.approx(-1, abs=1e-12)
