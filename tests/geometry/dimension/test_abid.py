import numpy as np
import pytest

from clip_geometry.geometry import abid
from clip_geometry.registry import InputError
from support.clouds import rotation
from support.oracles_dimension import abid as loops

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [2, 9, 30])
def test_any_number_of_neighbors(seed, k):
    x = np.random.default_rng(seed).normal(size=(60, 12))
    assert abid(x, k=k) == pytest.approx(loops(x, k), rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dimension", [1, 3])
def test_neighbors_in_a_subspace(seed, dimension):
    """On a line all cosines are ±1; in more dimensions k pairs of the k² are a neighbor with itself."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(size=(800, dimension)), np.zeros((800, 9 - dimension))], axis=1) @ rotation(9, rng)
    k = 50
    assert abid(x, k=k) == pytest.approx(1 / (1 / k + (1 - 1 / k) / dimension), rel=0.06 if dimension > 1 else 1e-9)


def test_it_reads_no_distance():
    """Rows in shells around the origin: stretching a neighbor's distance alone changes no angle."""
    rng = np.random.default_rng(0)
    arrows = rng.normal(size=(20, 5))
    values = []
    for lengths in (np.ones(20), rng.uniform(0.5, 2, size=20)):
        x = np.concatenate([np.zeros((1, 5)), lengths[:, None] * arrows])
        values.append(loops_at_the_origin(x))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def loops_at_the_origin(x):
    """abid of the first row, from the mean over all rows less that over the others."""
    k, n = len(x) - 1, len(x)
    others = [1 / np.mean(np.square(cosines(x, i))) for i in range(1, n)]
    return n * abid(x, k=k) - np.sum(others)


def cosines(x, i):
    arrows = np.delete(x, i, axis=0) - x[i]
    arrows /= np.linalg.norm(arrows, axis=1, keepdims=True)
    return arrows @ arrows.T


def test_noise_in_many_dimensions_has_about_four():
    """Two neighbors and the row itself are three corners of a simplex: cos = 1/2."""
    x = np.random.default_rng(0).normal(size=(200, 4000))
    assert abid(x, k=50) == pytest.approx(1 / (1 / 50 + 49 / 50 / 4), rel=0.05)


def test_too_few_different_rows():
    with pytest.raises(InputError, match="x has 9 rows, of which 3 are different; expected 5 such rows"):
        abid(np.repeat(np.eye(3), 3, axis=0), k=4)
