"""Harmony: harmonypy as oracle on the fitting rows, and the map of new rows against it."""

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry.transforms import Harmony

# rows 0 and 49 of a and 0 and 29 of b by harmonypy 0.0.10; it stops after 3 rounds:
#   run_harmony(np.concatenate([a, b]), pd.DataFrame({"m": ["a"] * 50 + ["b"] * 30}), ["m"], theta=2, nclust=4,
#               cluster_fn=lambda rows, k: rows[:k]).Z_corr.T
HARMONYPY = [
    [3.6235023874, 2.6948988091, 4.4273064504, 2.112174176],
    [2.2151229224, 2.2413458672, 3.314296123, 2.5936113418],
    [2.8386926352, 1.94616064, 2.6079668035, 2.7220753426],
    [2.6979221885, 2.5930325296, 3.2931225969, 2.6677904611],
]


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(50, 4)) + np.array([4, 3, 3, 2])
    return a, rng.normal(size=(30, 4)) * [1, 2, 1, 1] + [3, 3, 5, 2]


def test_reference_implementation(sets, monkeypatch):
    monkeypatch.setattr(Harmony, "_centers", lambda self, unit, k: unit[:k])
    found = Harmony(4).harmonize(*sets)
    assert np.allclose(found.rows[[0, 49, 50, 79]], HARMONYPY, atol=1e-9)
    assert found.centroids.shape == (3, 4, 4) and found.offsets.shape == (3, 4, 2, 4)


@pytest.mark.parametrize("seed", range(3))
def test_the_map_of_new_rows_is_what_was_learned(sets, seed):
    """On the fitting rows it differs from the reference by 3 % of the correction at most, since that updates block by
    block; rows of the same distributions are corrected as much."""
    harmony = Harmony(4, seed=seed)
    exact = harmony.harmonize(*sets).rows
    moved = np.concatenate([each.transform(x) for each, x in zip(harmony.fit_sets(sets), sets, strict=True)])
    correction = np.linalg.norm(exact - np.concatenate(sets))
    assert 0 < np.linalg.norm(moved - exact) < 0.03 * correction


def gap(a, b):
    return np.linalg.norm(a.mean(0) - b.mean(0))


def test_held_out_rows_lose_their_offset():
    rng = np.random.default_rng(1)
    topics = 4 * np.eye(6)[:3]
    draw = lambda n, offset: rng.normal(size=(n, 6)) * 0.5 + topics[np.arange(n) % 3] + offset  # noqa: E731
    offset = np.array([0, 0, 0, 0, 2.0, 1.0])
    fitted = Harmony(6).fit_sets([draw(90, 0), draw(60, offset)])
    image, text = draw(300, 0), draw(300, offset)
    moved = fitted[0].transform(image), fitted[1].transform(text)
    assert gap(*moved) < 0.15 * gap(image, text)
    for x, y in zip((image, text), moved, strict=True):  # topics stay apart
        assert ((y[:, None] - y[[0, 1, 2]]) ** 2).sum(2).argmin(1).tolist() == (np.arange(300) % 3).tolist()
        assert x.shape == y.shape


def test_equal_sets_stay(sets):
    a = sets[0]
    moved = Harmony(3).fit_sets([a, a])[0].transform(a)
    assert np.linalg.norm(moved - a) < 0.02 * np.linalg.norm(a - a.mean(0))
    untouched = Harmony(3, ridge=1e9).fit_sets(sets)[0].transform(a)
    assert np.allclose(untouched, a, atol=1e-5)


def test_the_ridge_regression(sets):
    """One cluster, little penalty: offsets are the modality's mean less the intercept, so that means agree."""
    moved = [each.transform(x) for each, x in zip(Harmony(1, ridge=1e-9).fit_sets(sets), sets, strict=True)]
    assert gap(*moved) < 1e-7 < gap(*sets)


def test_degenerate_rows(sets):
    a, b = sets
    with pytest.raises(InputError, match="zero row"):
        Harmony(2).fit_sets([a * 0, b])
    with pytest.raises(InputError, match=r"harmony\(k=9\) needs 9 rows, but there are 4"):
        Harmony(9).fit_sets([a[:2], b[:2]])
    constant = Harmony(2).fit_sets([np.tile(a[:1], (9, 1)), np.tile(b[:1], (5, 1))])
    assert np.isfinite(constant[1].transform(b)).all()
    two = Harmony().fit_sets([a[:2], b[:2]])[0].transform(a[:2])
    assert np.linalg.norm(two - a[:2]) > 0.1  # half way to the others, less the penalty
    flat = Harmony(2).fit_sets([a * [1, 1, 0, 0], b * [1, 1, 0, 0]])[0].transform(a * [1, 1, 0, 0])
    assert np.allclose(flat[:, 2:], 0, atol=1e-12)


@pytest.mark.parametrize(
    ("harmony", "message"),
    [
        (Harmony(0), "k of harmony = 0"),
        (Harmony(theta=-1), "theta of harmony = -1"),
        (Harmony(sigma=0), "sigma of harmony = 0"),
        (Harmony(ridge=float("nan")), "ridge of harmony = nan"),
        (Harmony(rounds=0), "rounds of harmony = 0"),
        (Harmony(seed=-1), "seed of harmony = -1"),
    ],
)
def test_parameters(harmony, message, sets):
    with pytest.raises(InputError, match=message):
        harmony.fit(*sets)
