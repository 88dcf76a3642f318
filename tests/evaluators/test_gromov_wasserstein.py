from itertools import permutations

import numpy as np
import ot
import pytest
import torch
from scipy.spatial.distance import cdist

import clip_geometry as cg
from clip_geometry.geometry import measures
from clip_geometry.registry import InputError
from support.clouds import cone, rotation

SEEDS = range(3)


def normalized(c, d, order):
    return ((c - d[np.ix_(order, order)]) ** 2).sum() / ((c**2).sum() + (d**2).sum())


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_no_less_than_the_best_of_all_matchings_and_often_that(seed):
    rng = np.random.default_rng(seed)
    x, y = cone(6, 3, rng), cone(6, 2, rng)
    c, d = cdist(x, x), cdist(y, y)
    best = min(normalized(c, d, order) for order in permutations(range(6)))
    found = cg.gromov_wasserstein(x, y)
    assert best - 1e-12 <= found <= 2 * best
    assert found < normalized(c, d, range(6))


@pytest.mark.parametrize("n", [30, 150])
def test_it_is_pots(n):
    rng = np.random.default_rng(n)
    x, y = cone(n, 8, rng), cone(n, 5, rng)
    c, d = cdist(x, x), cdist(y, y)
    value, log = ot.gromov.gromov_wasserstein2(c, d, tol_rel=1e-14, tol_abs=1e-14, log=True)
    assert cg.gromov_wasserstein(x, y) == pytest.approx(value / ((c**2).mean() + (d**2).mean()), rel=1e-9)
    assert np.count_nonzero(log["T"] > 1e-9) == n  # a permutation


@pytest.mark.parametrize("seed", SEEDS)
def test_one_shape_turned_shifted_and_shuffled_is_found(seed):
    rng = np.random.default_rng(seed)
    x = cone(60, 5, rng)
    y = (np.hstack([x, np.zeros((60, 2))]) @ rotation(7, rng) + rng.normal(size=7))[rng.permutation(60)]
    assert cg.gromov_wasserstein(x, y) == pytest.approx(0, abs=1e-12)


def test_a_scale_is_a_difference_and_one_point_is_all_of_it():
    x = cone(40, 3, np.random.default_rng(0))
    assert cg.gromov_wasserstein(x, 2 * x) == pytest.approx(1 / 5, rel=1e-9)  # (2 − 1)²/(2² + 1)
    assert cg.gromov_wasserstein(x, np.ones((40, 3))) == pytest.approx(1)
    with pytest.raises(InputError, match="there are no distances to compare"):
        cg.gromov_wasserstein(np.zeros((5, 3)), np.ones((5, 3)))


def test_more_rows_are_drawn_and_said():
    rng = np.random.default_rng(0)
    x, y = cone(90, 3, rng), cone(70, 3, rng)
    first = cg.gromov_wasserstein(x, y, of=40)
    assert first == cg.gromov_wasserstein(x, y, of=40) != cg.gromov_wasserstein(x, y, of=40, seed=1)
    chosen = torch.randperm(90, generator=torch.Generator().manual_seed(0))[:70].numpy()
    assert cg.gromov_wasserstein(x, y) == pytest.approx(cg.gromov_wasserstein(x[chosen], y), rel=1e-12)
    remark = measures["gromov_wasserstein"].remark
    assert remark(x, y) == "70 rows of each set, drawn with seed 0" and remark(x, x) is None


def test_gradients():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    y = torch.randn(6, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(cg.gromov_wasserstein, (x, y))
