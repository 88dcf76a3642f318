"""Silhouettes of many labellings from one pass: those of scikit-learn, one by one."""

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from clip_geometry.geometry import silhouette
from clip_geometry.geometry.clusters.silhouettes import silhouettes
from clip_geometry.registry import InputError
from support.clouds import cone


def labellings(n, seed, most=9):
    """Of 2 … most classes; the last has classes of a single row."""
    rng = np.random.default_rng(seed)
    found = [rng.permutation(np.concatenate([np.arange(k), rng.integers(k, size=n - k)])) for k in range(2, most)]
    return [*found, np.concatenate([np.arange(5), np.full(n - 5, 7)])]


@pytest.mark.parametrize("block_size", [7, 64, 1024])
@pytest.mark.parametrize("seed", range(3))
def test_each_is_that_of_scikit_learn(seed, block_size):
    x, labels = cone(150, 6, np.random.default_rng(seed)), labellings(150, seed)
    expected = [silhouette_score(x, each) for each in labels]
    found = silhouettes(x, labels, block_size=block_size)
    assert found.dtype == np.float64 and found == pytest.approx(expected, abs=1e-9)
    assert np.ptp(expected) > 0.05  # or one value would do for all


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_float32_rows_of_any_scale_keep_six_digits(scale):
    """Tight clusters far from each other and from the origin, where plain float32 products leave nothing."""
    rng = np.random.default_rng(0)
    codes = np.arange(120) % 3
    x = ((100 * rng.normal(size=(3, 5)) + 50)[codes] + 0.01 * rng.normal(size=(120, 5))).astype(np.float32)
    labels = [codes, np.arange(120) % 6, rng.integers(2, size=120)]
    expected = [silhouette_score(x.astype(np.float64), each) for each in labels]
    assert silhouettes(np.float32(scale) * x, labels) == pytest.approx(expected, abs=1e-6)
    assert expected[0] > 0.99 and expected[1] < 0.1


def test_it_is_the_silhouette_of_one_labelling():
    x = cone(90, 4, np.random.default_rng(1)).astype(np.float32)
    labels = ["a", "b", "b"] * 30
    assert float(silhouettes(x, [labels])[0]) == pytest.approx(float(silhouette(x, labels)), abs=1e-7)


def test_copies_are_at_no_distance():
    x = np.repeat(np.array([[0.0, 0.0], [3.0, 4.0]]), 4, axis=0)
    first, second = silhouettes(x, [[0] * 4 + [1] * 4, [0, 1] * 4]).tolist()
    assert first == 1
    assert second == pytest.approx(silhouette_score(x, [0, 1] * 4), abs=1e-12)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "there are no labellings; expected at least one"),
        ([[0, 0, 1, 1], [0, 0, 0, 0]], "all 4 labels are equal"),
        ([[0, 1, 2, 3]], "each of the 4 rows has a label of its own; expected a class of two rows"),
        ([[0, 1]], "2 labels for 4 rows"),
    ],
)
def test_unusable_labellings(labels, message):
    with pytest.raises(InputError, match=message):
        silhouettes(np.eye(4), labels)
