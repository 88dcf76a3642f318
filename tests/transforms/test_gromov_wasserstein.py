"""The Gromov-Wasserstein map: POT's plan, and what theory says of the map."""

import numpy as np
import ot
import pytest
from sklearn.exceptions import ConvergenceWarning

from clip_geometry.registry import InputError
from clip_geometry.transforms import GromovWasserstein, Pipeline, RankWarning
from clip_geometry.transforms.gromov_wasserstein import coupling
from support.clouds import rotation


def cloud(n, d, seed=0):
    """Skewed rows of unequal variances, which no turn maps onto themselves."""
    rng = np.random.default_rng(seed)
    x = rng.exponential(size=(n, d)) * np.linspace(3, 1, d)
    return x - x.mean(0)


def relative(x):
    distances = ot.dist(x, x, metric="euclidean")
    return distances / np.sqrt(np.square(distances).mean())


@pytest.mark.parametrize(("n", "m", "d", "e"), [(12, 17, 3, 3), (15, 10, 2, 4)])
def test_the_plan_is_pots(n, m, d, e):
    x, y = cloud(n, d), cloud(m, e, seed=1)
    theirs = ot.gromov.entropic_gromov_wasserstein(
        relative(x), relative(y), epsilon=0.3, tol=1e-13, stopThr=1e-14, numItermax=5000
    )
    ours = coupling(x, y, 0.3, 500)
    assert np.abs(ours - theirs).max() * n * m < 1e-6  # relative to the independent plan


def test_the_maps_are_fitted_on_the_plan():
    """Procrustes and least squares of all couplings (x_i, y_j) with weight P_ij."""
    x, y = cloud(15, 2), cloud(10, 3, seed=1)
    plan = coupling(x, y, 0.3, 500)
    u, _, vt = np.linalg.svd(x.T @ plan @ y, full_matrices=False)
    scale = np.sqrt(np.square(y).sum(1).mean() / np.square(x).sum(1).mean())
    assert np.allclose(GromovWasserstein(0.3).fit(x + 4, y - 1).W_, scale * u @ vt, atol=1e-8)
    linear = np.linalg.solve(x.T @ x / 15, x.T @ plan @ y)
    fitted = GromovWasserstein(0.3, form="linear").fit(x + 4, y - 1)
    assert np.allclose(fitted.W_, linear, atol=1e-8)
    assert np.allclose(fitted.transform(x + 4).mean(0), y.mean(0) - 1)


def test_a_turned_set_of_another_dimension_is_found():
    x, turn = cloud(16, 2), rotation(3, np.random.default_rng(1))[:2]
    y = 5 * x[np.random.default_rng(2).permutation(16)] @ turn - 3
    fitted = GromovWasserstein(0.02).fit(x, y)
    assert np.abs(fitted.transform(x) - (5 * x @ turn - 3)).max() < 1e-3
    equal = GromovWasserstein(0.02).fit(x, x[::-1])
    assert np.abs(equal.W_ - np.eye(2)).max() < 1e-4


def test_the_map_turns_with_the_sets():
    x, y = cloud(15, 2), cloud(10, 3, seed=1)
    turn, other = rotation(2, np.random.default_rng(1)), rotation(3, np.random.default_rng(2))
    moved = GromovWasserstein(0.3).fit(2 * x @ turn, 7 * y @ other + 1).W_
    assert np.allclose(moved, 3.5 * turn.T @ GromovWasserstein(0.3).fit(x, y).W_ @ other, atol=1e-6)


def test_degenerate_sets():
    x = cloud(10, 4)
    with pytest.raises(InputError, match="but the source has 10 equal rows"):
        GromovWasserstein().fit(np.ones_like(x), x)
    with pytest.warns(RankWarning, match="rows of rank 2 in dimension 4, which leave part of the map free"):
        fitted = GromovWasserstein(0.3).fit(x[:3], x)
    assert np.linalg.matrix_rank(fitted.W_) == 2
    with pytest.warns(ConvergenceWarning, match="gromov_wasserstein: after 1 iterations the plan still changes by"):
        GromovWasserstein(0.05, iterations=1).fit(x, x)


def test_in_a_pipeline():
    x, y = cloud(15, 2), cloud(10, 2, seed=1)
    fitted = Pipeline("gromov_wasserstein(0.3, form=linear)[text-to-image]").fit({"image": y, "text": x})
    assert np.allclose(fitted.affine("text")(x), fitted.transform({"text": x})["text"])
