"""mini-vec2vec: the authors' procedure in plain numpy, and rotations found from rows of different items."""

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import quadratic_assignment
from sklearn.cluster import KMeans

from clip_geometry.registry import InputError
from clip_geometry.transforms import MiniVec2Vec, Pipeline, RankWarning
from support.clouds import rotation

SETTINGS = {"anchors": 12, "runs": 12, "tries": 8, "neighbors": 20, "steps": 10, "clusters": 12}


def draw(n, seed, d=6):
    """Rows of twelve clusters; other seeds are other rows."""
    centers = np.random.default_rng(7).normal(size=(12, d)) * [5, 4, 3, 2, 1, 1]
    rng = np.random.default_rng(seed)
    return centers[rng.integers(12, size=n)] + 0.3 * rng.normal(size=(n, d)) + 2


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def authors(x, y, *, anchors, runs, tries, neighbors, steps, clusters, seed=0):
    """linear_vec2vec.ipynb of guy-dar/mini-vec2vec, with the random numbers drawn in our order."""
    rng = np.random.default_rng(seed)

    def clustered(rows, k, start="k-means++"):
        return KMeans(k, init=start, n_init=1, random_state=int(rng.integers(2**32 - 1))).fit(rows).cluster_centers_

    def centered_products(c):
        h = np.eye(len(c)) - 1 / len(c)
        return h @ c @ c.T @ h

    def mean_of_nearest(a, b, rows):
        return rows[np.argsort(-unit(a) @ unit(b).T, axis=1)[:, :neighbors]].mean(1)

    x, y = unit(x - x.mean(0)), unit(y - y.mean(0))
    first, second = [], []
    for _ in range(runs):
        a = clustered(x[rng.permutation(len(x))], anchors)
        b = clustered(y[rng.permutation(len(y))], anchors)
        best = None
        for _ in range(tries):
            found = quadratic_assignment(
                centered_products(a), centered_products(b), method="2opt", options={"maximize": True, "rng": rng}
            )
            if best is None or best.fun < found.fun:
                best = found
        first.append(a)
        second.append(b[best.col_ind])
    sim1, sim2 = unit(x) @ unit(np.concatenate(first)).T, unit(y) @ unit(np.concatenate(second)).T
    w, _ = orthogonal_procrustes(x, mean_of_nearest(sim1, sim2, y))
    for _ in range(steps):
        sample = x[rng.permutation(len(x))[:1000]]
        w = 0.5 * w + 0.5 * orthogonal_procrustes(sample, mean_of_nearest(sample @ w, y, y))[0]
    centers = clustered(x, clusters)
    return 0.5 * w + 0.5 * orthogonal_procrustes(centers, clustered(y, clusters, centers @ w))[0]


def test_the_map_is_the_authors():
    x, y = draw(200, 0), draw(250, 1) @ rotation(6, np.random.default_rng(2)) * 3
    fitted, w = MiniVec2Vec(**SETTINGS).fit(x, y), authors(x, y, **SETTINGS)
    lengths = [np.sqrt(np.square(rows - rows.mean(0)).sum(1).mean()) for rows in (x, y)]
    assert np.abs(fitted.W_ - lengths[1] / lengths[0] * w).max() < 1e-6
    others = draw(9, 3)  # of centered unit rows, as the authors apply it, the directions are the same
    ours = fitted.transform(others) - y.mean(0)
    assert np.allclose(unit(ours), unit(unit(others - x.mean(0)) @ w), atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_rotation_is_found_from_different_rows(seed):
    """Within 0.1 of every entry, for every seed; 400 rows of each set, none in common."""
    turn = rotation(6, np.random.default_rng(seed))
    x, y = draw(400, [seed, 0]), 2 * draw(400, [seed, 1]) @ turn
    found = MiniVec2Vec(**SETTINGS | {"seed": seed}).fit(x, y)
    assert np.abs(found.W_ / 2 - turn).max() < 0.1
    others = draw(50, [seed, 2])
    assert np.abs(unit(found.transform(others)) - unit(2 * others @ turn)).max() < 0.1


def test_spaces_of_two_dimensions():
    """A space of six dimensions in one of nine: W has orthonormal rows, up to its averages and the scale."""
    embed = rotation(9, np.random.default_rng(3))[:6]
    x, y = draw(400, 0), draw(300, 1) @ embed - 1
    found = MiniVec2Vec(**SETTINGS).fit(x, y)
    assert found.W_.shape == (6, 9) and np.abs(found.W_ - embed).max() < 0.1


def test_degenerate_sets():
    x = draw(100, 0)
    with pytest.raises(InputError, match="takes 12 anchors of each set, but the target has 12 rows; it needs"):
        MiniVec2Vec(**SETTINGS).fit(x, x[:12])
    with pytest.raises(InputError, match="matches the clusters of two sets, but all rows of one set are equal"):
        MiniVec2Vec(**SETTINGS).fit(x, np.ones_like(x))
    wide = np.pad(x, ((0, 0), (0, 3)))
    with pytest.warns(RankWarning, match="mini_vec2vec was fitted on rows of rank 6 in dimension 9"):
        found = MiniVec2Vec(**SETTINGS).fit(wide, wide)
    assert np.allclose(found.W_[6:], 0, atol=1e-12)


def test_in_a_pipeline():
    """The target stays; the map is affine and repeats with its seed."""
    sets = {"new": draw(100, 0), "old": draw(120, 1)}
    step = "mini_vec2vec(8, runs=2, tries=2, neighbors=9, steps=2, clusters=9)[old-to-new]"
    first, second = (Pipeline(step).fit(sets) for _ in range(2))
    moved = first.transform(sets)
    assert np.array_equal(moved["new"], sets["new"]) and np.array_equal(moved["old"], second.transform(sets)["old"])
    assert np.allclose(first.affine("old")(sets["old"]), moved["old"])
