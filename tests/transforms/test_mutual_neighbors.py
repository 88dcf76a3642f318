"""Mutual nearest neighbors: the formula of Haghverdi et al. in loops, and what it promises.

mnnpy is no oracle: its kernel is exp(−⟨x, l⟩/sigma), with an inner product where the paper and mnnCorrect (batchelor)
have a squared distance, so that far rows weigh most.
"""

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry.transforms import MutualNeighbors
from support.clouds import cone


def in_loops(new, source, target, k, sigma):
    near = [
        {j: set(np.argsort([((x - y) ** 2).sum() for y in other])[:k]) for j, x in enumerate(rows)}
        for rows, other in ((source, target), (target, source))
    ]
    vectors = {}
    for i in range(len(source)):
        differences = [target[j] - source[i] for j in near[0][i] if i in near[1][j]]
        if differences:
            vectors[i] = np.mean(differences, axis=0)
    kernel = lambda x, i: np.exp(-((x - source[i]) ** 2).sum() / sigma)  # noqa: E731
    density = {i: sum(kernel(source[j], i) for j in vectors) for i in vectors}
    moved = []
    for x in new:
        weights = {i: kernel(x, i) / density[i] for i in vectors}
        moved.append(x + sum(weights[i] * vectors[i] for i in vectors) / sum(weights.values()))
    return np.array(moved), len(vectors)


@pytest.mark.parametrize(("k", "sigma"), [(1, 1.0), (4, 0.5), (20, 3.0)])
def test_formula(k, sigma):
    rng = np.random.default_rng(k)
    source, target, new = cone(25, 4, rng), cone(18, 4, rng) + 1, cone(6, 4, rng)
    fitted = MutualNeighbors(k, sigma).fit(source, target)
    for rows in (source, new):
        expected, paired = in_loops(rows, source, target, min(k, 25), sigma)
        assert np.allclose(fitted.transform(rows), expected, rtol=1e-9, atol=1e-10)
    assert len(fitted.rows_) == paired


def test_a_shift_is_undone():
    """Mutual neighbors of a set and its copy, shifted by less than half the distance between rows, are the copies."""
    source = np.stack(np.meshgrid(np.arange(5.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    target = source + np.array([0.3, 0.2])
    assert np.allclose(MutualNeighbors(1).fit(source, target).transform(source), target, atol=1e-12)
    assert (MutualNeighbors(1).fit(source, source).transform(source) == source).all()


def test_far_rows_take_the_correction_of_the_nearest():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(2, 30, 3))
    fitted = MutualNeighbors(5).fit(source, target)
    moved = fitted.transform(np.array([[1e4, 0.0, 0.0], [-1e8, 1e8, 0]]))
    steps = np.linalg.norm(moved - [[1e4, 0, 0], [-1e8, 1e8, 0]], axis=1)
    assert np.isfinite(moved).all() and (steps < 10).all()


def test_equal_and_flat_rows():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(2, 9, 3))
    equal = MutualNeighbors(3).fit(np.tile(source[0], (6, 1)), np.tile(target[0], (4, 1)))
    assert np.allclose(equal.transform(source[:1]), target[:1])
    flat = source * [1, 1, 0]
    assert np.allclose(MutualNeighbors(3).fit(flat, target * [1, 1, 0]).transform(flat)[:, 2], 0)


def test_equally_near_rows_have_mutual_neighbors():
    """The first of each: among rows that are as near, the lowest number is taken."""
    fitted = MutualNeighbors(1).fit(np.zeros((4, 2)), np.tile([1.0, 0], (3, 1)))
    assert (fitted.rows_.tolist(), fitted.vectors_.tolist()) == ([[0, 0]], [[1, 0]])


@pytest.mark.parametrize(
    ("transform", "message"),
    [(MutualNeighbors(0), "k of mutual_neighbors = 0"), (MutualNeighbors(sigma=0), "sigma of mutual_neighbors = 0")],
)
def test_parameters(transform, message):
    with pytest.raises(InputError, match=message):
        transform.fit(np.eye(3), np.eye(3))
