import numpy as np
import pytest
from sklearn.cluster import KMeans

from clip_geometry.registry import InputError
from clip_geometry.transforms import ClusterCenter
from support.clouds import cone


@pytest.mark.parametrize("far", [0, 1000])
def test_clusters_are_scikit_learns_and_new_rows_go_to_the_nearest(far):
    x, y = (cone(n, 4, np.random.default_rng(n)) + far for n in (80, 20))
    result = ClusterCenter(5, seed=7).fit(x)
    oracle = KMeans(5, n_init=10, random_state=7, tol=0, max_iter=1000).fit(x - x.mean(0))
    centres = oracle.cluster_centers_ + x.mean(0)
    nearest = [np.argmin([np.linalg.norm(row - centre) for centre in centres]) for row in y]
    assert result.nearest(y).tolist() == nearest
    assert np.allclose(result.transform(y), y - centres[nearest], atol=1e-10)
    within = [result.transform(x)[result.nearest(x) == label].mean(0) for label in range(5)]
    assert np.abs(within).max() < 1e-12


def test_k_means_runs_to_convergence():
    """Without structure it takes many steps; stopped early, a centre is off the mean of its cluster by 2e-3."""
    x = np.random.default_rng(0).uniform(size=(2000, 2))
    result = ClusterCenter(8).fit(x)
    moved, which = result.transform(x), result.nearest(x)
    assert max(np.abs(moved[which == label].mean(0)).max() for label in range(8)) < 1e-12


def test_too_few_rows():
    x = np.repeat(cone(3, 4, np.random.default_rng(0)), 4, axis=0)
    with pytest.raises(InputError, match=r"cluster_center\(13\) needs 13 different rows, but it is fitted on 12 rows"):
        ClusterCenter(13).fit(x)
    with pytest.raises(InputError, match="needs 5 different rows, but it is fitted on 12 rows, 3 of them different"):
        ClusterCenter(5).fit(x)
    assert np.abs(ClusterCenter(3).fit(x).transform(x)).max() < 1e-12


def clusters(seed=0, far=0.0):
    """Three clusters of unequal size, and which row is in which."""
    rng = np.random.default_rng(seed)
    which = np.repeat([0, 1, 2], [20, 30, 10])
    return 5 * rng.normal(size=(3, 4))[which] + 0.3 * rng.normal(size=(60, 4)) + far, which


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_each_cluster_loses_its_mean(seed, far):
    x, which = clusters(seed, far)
    moved = ClusterCenter(3).fit(x).transform(x)
    expected = np.array([row - x[which == label].mean(0) for row, label in zip(x, which, strict=True)])
    assert np.allclose(moved, expected, atol=1e-10)
