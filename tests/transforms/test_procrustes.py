"""Orthogonal Procrustes: unique where the pairs have full rank, and otherwise nearest to the identity."""

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from clip_geometry.registry import InputError
from clip_geometry.transforms import Procrustes, RankWarning
from clip_geometry.transforms.paired import nearest_orthogonal
from support.clouds import cone, rotation


def pairs(n, d, seed):
    """Aligned rows of two cones, one turned against the other, with noise."""
    rng = np.random.default_rng([n, d, seed])
    x = cone(n, d, rng)
    return x, x @ rotation(d, rng) + 0.3 * rng.normal(size=(n, d))


def few(rank, d, seed, n=40):
    """n pairs made of `rank` different ones."""
    source, target = pairs(rank, d, seed)
    which = np.arange(n) % rank
    return source[which], target[which]


def fit(source, target, completion="identity"):
    """A fit that is not unique."""
    with pytest.warns(RankWarning):
        return Procrustes(completion).fit(source, target)


def error(source, target, turn):
    return np.linalg.norm(source @ turn - target)


@pytest.mark.parametrize("completion", ["identity", "lapack"])
@pytest.mark.parametrize("seed", range(5))
def test_unique_solutions_are_scipys(seed, completion):
    source, target = pairs(60, 6, seed)
    result = Procrustes(completion).fit(source, target)
    assert np.allclose(result.W_, orthogonal_procrustes(source, target)[0], atol=1e-12)
    assert np.allclose(result.transform(source), source @ result.W_, rtol=1e-14)
    assert (result.rank_, result.fitted_on_) == (6, 60)


@pytest.mark.parametrize("rank", [1, 2, 4, 7])
@pytest.mark.parametrize("seed", range(3))
def test_completions_are_orthogonal_and_equally_good(rank, seed):
    source, target = few(rank, 8, seed)
    ours, lapacks = fit(source, target), fit(source, target, "lapack")
    for result in (ours, lapacks):
        assert result.rank_ == rank
        assert np.abs(result.W_.T @ result.W_ - np.eye(8)).max() < 1e-12
    best = error(source, target, orthogonal_procrustes(source, target)[0])
    assert error(source, target, ours.W_) == pytest.approx(best, rel=1e-12)
    assert error(source, target, lapacks.W_) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 4, 7])
@pytest.mark.parametrize("seed", range(3))
def test_no_other_completion_is_nearer_to_the_identity(rank, seed):
    """Ω' = U_r V_rᵀ + U_⊥ Q V_⊥ᵀ for random orthogonal Q, near and far from ours: all of them equally good maps."""
    source, target = few(rank, 8, seed)
    ours = fit(source, target).W_
    distance = np.linalg.norm(ours - np.eye(8))
    u, _, vt = np.linalg.svd(source.T @ target)
    rng = np.random.default_rng(seed)
    free = 8 - rank
    lapacks = np.linalg.norm(fit(source, target, "lapack").W_ - np.eye(8))
    assert lapacks > distance + 0.1 or (free == 1 and lapacks > distance - 1e-12)  # of ±1 LAPACK may hit the nearer
    for step in (*[None] * 20, 1e-1, 1e-2, 1e-3):
        if step is None:
            q = rotation(free, rng)
        else:  # a small turn of our own Q
            q = nearest_orthogonal(u[:, rank:].T @ ours @ vt[rank:].T + step * rng.normal(size=(free, free)))
        other = u[:, :rank] @ vt[:rank] + u[:, rank:] @ q @ vt[rank:]
        assert error(source, target, other) == pytest.approx(error(source, target, ours), rel=1e-10)
        assert np.linalg.norm(other - np.eye(8)) >= distance - 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_the_completion_is_a_function_of_the_data(seed):
    """Turned data have the turned map, which LAPACK's completion has not."""
    source, target = few(3, 8, seed)
    turn = rotation(8, np.random.default_rng(seed))
    ours = turn.T @ fit(source, target).W_ @ turn
    assert np.abs(fit(source @ turn, target @ turn).W_ - ours).max() < 1e-9
    lapacks = turn.T @ fit(source, target, "lapack").W_ @ turn
    assert np.abs(fit(source @ turn, target @ turn, "lapack").W_ - lapacks).max() > 0.1


def test_the_warning_says_what_was_done():
    source, target = few(3, 8, seed=0)
    with pytest.warns(RankWarning, match="pairs of rank 3 in dimension 8.*completed nearest to the identity"):
        Procrustes().fit(source, target)
    with pytest.warns(RankWarning, match="pairs of rank 3 in dimension 8.*completed as LAPACK happens to"):
        Procrustes("lapack").fit(source, target)


def test_sets_that_cannot_be_turned_onto_each_other():
    x = cone(6, 4, np.random.default_rng(0))
    with pytest.raises(
        InputError, match="source has dimension 4 and target has 3; procrustes needs both in one space, but least_"
    ):
        Procrustes().fit(x, x[:, :3])
    with pytest.raises(InputError, match="source has 6 rows and target has 5; expected pairs"):
        Procrustes().fit(x, x[:5])
    with pytest.raises(InputError, match=r"procrustes maps one set onto another: fit it on both, fit\(source, target"):
        Procrustes().fit(x)
    with pytest.raises(InputError, match="target has NaN or infinity in row 0"):
        Procrustes().fit(x, x * np.nan)
