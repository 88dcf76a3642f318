"""Whitening, principal components and all-but-the-top: definitions as oracles, axes that are functions of the data."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA as SklearnPCA

from clip_geometry.registry import InputError
from clip_geometry.transforms import PCA, AllButTheTop, Whiten
from clip_geometry.transforms.principal import principal_axes
from support.clouds import CLOUDS, cone, rotation


def rows_of(cloud, seed=0):
    return CLOUDS[cloud](60, np.random.default_rng(seed))


def full_rank(x):
    return min(len(x) - 1, x.shape[1])


def up_to_signs(found, expected, tolerance):
    """Columns agree but for their signs."""
    signs = np.sign((found * expected).sum(0))
    return np.abs(found - signs * expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("cloud", CLOUDS)
def test_whitened_covariance_is_the_identity(cloud):
    """All directions of the rank, the smallest included: the spectrum of `decades` spans eight decades of variance."""
    x = rows_of(cloud)
    k = principal_axes(x, center=True).rank
    white = Whiten(k).fit(x).transform(x)
    assert np.abs(np.cov(white.T, ddof=1) - np.eye(k)).max() < 1e-6
    assert np.abs(white.mean(0)).max() < 1e-6


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("far", [0, 1000])
@pytest.mark.parametrize("rank", [1, 3, 7])
def test_rank_of_rows_in_a_subspace(rank, far, center):
    rng = np.random.default_rng(rank)
    x = rng.normal(size=(50, rank)) @ rng.normal(size=(rank, 12)) + far * rng.normal(size=12)
    result = principal_axes(x, center=center).rank
    assert result == rank + (far > 0 and not center)


def test_rank_of_equal_rows():
    equal = np.tile(cone(1, 5, np.random.default_rng(0)), (6, 1))
    assert principal_axes(equal, center=True).rank == 0
    assert principal_axes(equal, center=False).rank == 1
    assert principal_axes(np.zeros((3, 2)), center=False).rank == 0


@pytest.mark.parametrize("make", [Whiten, PCA, AllButTheTop])
def test_k_above_the_rank_is_an_error(make):
    x = cone(8, 20, np.random.default_rng(0))
    make(6 if make is AllButTheTop else 7).fit(x)
    with pytest.raises(InputError, match=r"\(8\) needs 8 directions, but the 8 rows it is fitted on span only 7"):
        make(8).fit(x)
    PCA(8, center=False).fit(x)
    with pytest.raises(InputError, match=r"pca\(9\) needs 9 directions, but the 8 rows it is fitted on span only 8"):
        PCA(9, center=False).fit(x)


@pytest.mark.parametrize("n", [5, 12, 60])
@pytest.mark.parametrize("make", [Whiten, PCA])
def test_by_default_all_directions_are_kept(make, n):
    """min(n − 1, d) of them: scikit-learn's whitening and components for n > d, and distances kept by PCA for any n."""
    x = cone(n, 12, np.random.default_rng(n))
    fitted = make().fit(x)
    k = min(n - 1, 12)
    assert fitted.components_.shape == (k, 12)
    assert np.array_equal(fitted.transform(x), make(k).fit(x).transform(x))
    if make is PCA:
        assert np.allclose(pdist(fitted.transform(x)), pdist(x), rtol=1e-9)
    else:
        assert np.allclose(np.cov(fitted.transform(x).T), np.eye(k), atol=1e-9)
    if n > 12:
        theirs = SklearnPCA(whiten=make is Whiten, svd_solver="full").fit(x)
        assert up_to_signs(fitted.transform(x), theirs.transform(x), 1e-9)


@pytest.mark.parametrize(("d", "k"), [(3, 1), (99, 1), (300, 3), (512, 5), (768, 8)])
def test_by_default_a_hundredth_of_the_directions_is_removed(d, k):
    """Mu & Viswanath 2018: D of about d/100, 3 for their word2vec of 300 dimensions."""
    x = np.random.default_rng(0).normal(size=(20, d))
    assert AllButTheTop().fit(x).components_.shape == (k, d)
    assert np.array_equal(AllButTheTop().fit_transform(x), AllButTheTop(k).fit_transform(x))


def test_removing_all_directions_is_an_error():
    """What is left would be rounding, which a normalize after it makes unit rows of."""
    with pytest.raises(InputError, match=r"all_but_the_top\(7\) removes all 7 directions in which the 8 rows differ"):
        AllButTheTop(7).fit(cone(8, 20, np.random.default_rng(0)))


@pytest.mark.parametrize("cloud", CLOUDS)
def test_pca_is_scikit_learns(cloud):
    x = rows_of(cloud)
    k = full_rank(x) - 1
    ours, theirs = PCA(k).fit(x), SklearnPCA(k, svd_solver="full").fit(x)
    assert np.allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-7)
    assert up_to_signs(ours.transform(x), theirs.transform(x), 1e-7)


def test_uncentered_pca_is_the_truncated_svd():
    x, y = cone(40, 6, np.random.default_rng(0)), cone(9, 6, np.random.default_rng(1))
    _, s, vt = np.linalg.svd(x)
    pca = PCA(4, center=False).fit(x)
    assert up_to_signs(pca.transform(y), y @ vt[:4].T, 1e-12)
    assert np.allclose(pca.explained_variance_, s[:4] ** 2 / 39, rtol=1e-12)
    assert not pca.mean_.any()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_all_but_the_top_is_mu_and_viswanath(k):
    """Their projection, of the raw rows, differs from ours by one vector, so that ours has mean zero."""
    x, y = cone(60, 6, np.random.default_rng(k)), cone(9, 6, np.random.default_rng(k + 10))
    mean, top = x.mean(0), np.linalg.svd(x - x.mean(0))[2][:k]
    removed = AllButTheTop(k).fit(x)
    expected = np.array([(w - mean) - sum((v @ (w - mean)) * v for v in top) for w in y])
    assert np.allclose(removed.transform(y), expected, rtol=1e-10, atol=1e-12)
    theirs = np.array([(w - mean) - sum((v @ w) * v for v in top) for w in y])
    assert np.ptp(removed.transform(y) - theirs, axis=0).max() < 1e-12
    assert np.abs(removed.transform(x).mean(0)).max() < 1e-12
    assert np.abs(removed.transform(x) @ top.T).max() < 1e-12
    assert np.linalg.matrix_rank(removed.transform(x)) == 6 - k


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_axes_turn_with_the_data(center, seed):
    """Rotated data have rotated axes, signs included, and the order of the rows does not matter."""
    rng = np.random.default_rng(seed)
    x, turn = cone(60, 6, rng), rotation(6, rng)
    axes = principal_axes(x, center=center).axes
    assert np.allclose(principal_axes(x @ turn, center=center).axes, axes @ turn, atol=1e-9)
    assert np.allclose(principal_axes(x[rng.permutation(60)], center=center).axes, axes, atol=1e-9)
    scores = (x - center * x.mean(0)) @ axes.T
    assert (scores.max(0) > -scores.min(0)).all()


def test_blocks_are_one_matrix():
    """9000 rows are three blocks; the largest score lies in the last."""
    x = cone(9000, 6, np.random.default_rng(0))
    x[8990] *= -50
    result, mean = principal_axes(x, center=True), x.mean(0)
    _, s, vt = np.linalg.svd(x - mean, full_matrices=False)
    assert np.allclose(result.singular_values, s, rtol=1e-12)
    signs = np.sign(((x - mean) @ vt.T)[np.abs((x - mean) @ vt.T).argmax(0), range(6)])
    assert np.allclose(result.axes, vt * signs[:, None], atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_whitening_is_su_et_al(seed):
    """(w − μ) U_k diag(s_k)^(−1/2) from the covariance, and PCA, not ZCA: the components are uncorrelated axes."""
    x, y = cone(200, 6, np.random.default_rng(seed)), cone(9, 6, np.random.default_rng(seed + 100))
    u, s, _ = np.linalg.svd(np.cov(x.T, ddof=1))
    white = Whiten(4).fit(x)
    assert up_to_signs(white.transform(y), (y - x.mean(0)) @ u[:, :4] / np.sqrt(s[:4]), 1e-10)
    assert np.allclose(white.explained_variance_, s[:4], rtol=1e-12)
    assert (white.rank_, white.fitted_on_) == (6, 200)
