import numpy as np
import pytest
from scipy.stats import binom, chi2

from clip_geometry.geometry import batch_asw, graph_connectivity, kbet, modality_silhouette
from clip_geometry.registry import InputError
from support.clouds import cone
from support.oracles_modalities import batch_asw as plain_asw
from support.oracles_modalities import graph_connectivity as plain_connectivity

SEEDS = range(3)
COLUMN = np.arange(40.0)[:, None]


def test_kbet_is_a_chi_squared_test_of_each_neighborhood():
    """Rows on a line, k = 9 and equal sizes: accepted are 2 to 7 of one modality, since χ² = (o − 4.5)²/2.25."""
    accepted = [o for o in range(10) if (o - 4.5) ** 2 / 2.25 <= chi2.isf(0.05, 1)]
    assert accepted == list(range(2, 8))
    image, text = COLUMN[::2], COLUMN[1::2]  # alternating: 4 or 5 of each
    assert kbet(image, text, k=9) == 1
    image, text = COLUMN[:20], COLUMN[20:] + 0.5  # halves: only the rows nearest to the border have two of the other
    others = [np.sum(np.argsort(np.abs(np.r_[image, text][:, 0] - r[0]))[:9] >= 20) for r in np.r_[image, text]]
    assert kbet(image, text, k=9) == pytest.approx(np.mean([2 <= o <= 7 for o in others]))
    assert 0 < kbet(image, text, k=9) < 0.3


def test_kbet_of_random_labels_is_the_chance_of_acceptance():
    """One row's own label, and 49 of fair coins."""
    chance = sum(binom.pmf(o - 1, 49, 0.5) for o in range(1, 51) if (o - 25) ** 2 / 12.5 <= chi2.isf(0.05, 1))
    found = [kbet(*np.random.default_rng(seed).normal(size=(2, 1000, 3))) for seed in range(8)]
    assert np.mean(found) == pytest.approx(chance, abs=0.01)


@pytest.mark.parametrize("alpha", [0.5, 0.01])
def test_a_stricter_level_accepts_fewer(alpha):
    x, y = np.random.default_rng(0).normal(size=(2, 100, 4))
    assert (kbet(x, y + 0.4, alpha=alpha) < kbet(x, y + 0.4)) == (alpha > 0.05)
    with pytest.raises(InputError, match="alpha = 1; expected a level of a test, between 0 and 1"):
        kbet(x, y, alpha=1)


def test_two_islands_and_one_bridge():
    rng = np.random.default_rng(0)
    image, text = rng.normal(size=(60, 2)), rng.normal(size=(40, 2)) + np.array([50, 0])
    assert graph_connectivity(image, text) == pytest.approx(0.6)
    bridge = np.concatenate([image, [[25.0, 0]]])  # the nearest of which are of both
    assert graph_connectivity(bridge, text, k=80) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_classes_are_taken_by_themselves(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 90), rng.integers(0, 4, 70)
    image, text = cone(90, 3, rng), cone(70, 3, rng)
    image[labels[0] == 1] += 30  # this class is two islands
    found = graph_connectivity(image, text, labels, k=3)
    assert found == pytest.approx(plain_connectivity(image, text, labels, k=3), rel=1e-12)
    assert 0.2 < found < 0.4 < 1 == graph_connectivity(image, text, labels, k=159)
    assert batch_asw(image, text, labels) == pytest.approx(plain_asw(image, text, labels), rel=1e-9)


def test_long_chains_are_one_component():
    """Every row knows only the next: the lowest index has to go the whole way."""
    line = np.cumsum(1.01 ** np.arange(400))[:, None]
    order = np.random.default_rng(0).permutation(400)
    assert graph_connectivity(line[order[:200]], line[order[200:]], k=1) == 1


def test_without_labels_the_silhouette_width_is_that_of_the_modalities():
    """Where all silhouettes are positive."""
    x, y = np.random.default_rng(0).normal(size=(2, 50, 3))
    assert batch_asw(x, y + 10) == pytest.approx(1 - modality_silhouette(x, y + 10), rel=1e-12)
    assert 0.85 < batch_asw(x, y) < 1 - abs(modality_silhouette(x, y))


def test_a_modality_inside_of_the_other_is_not_mixed():
    """Its silhouettes are positive, those of the other negative: their mean hides what their size shows."""
    rng = np.random.default_rng(0)
    ring = rng.normal(size=(100, 2))
    ring /= np.linalg.norm(ring, axis=1, keepdims=True)
    inside = 0.1 * rng.normal(size=(100, 2))
    assert batch_asw(ring, inside) < 0.5 < 0.65 < 1 - modality_silhouette(ring, inside)


def test_a_class_of_one_modality_is_left_out():
    rng = np.random.default_rng(0)
    image, text = rng.normal(size=(30, 3)), rng.normal(size=(20, 3)) + 3
    some = batch_asw(image, text, ([0] * 30, [0] * 20))
    extra = np.concatenate([image, rng.normal(size=(10, 3))])
    assert batch_asw(extra, text, (["a"] * 30 + ["b"] * 10, ["a"] * 20)) == pytest.approx(some, rel=1e-12)
    with pytest.raises(InputError, match="no class has rows of both image and text"):
        batch_asw(image, text, ([0] * 30, [1] * 20))


def test_labels_are_two_lists():
    image, text = np.random.default_rng(0).normal(size=(2, 30, 3))
    with pytest.raises(InputError, match="labels are those of one set; expected two: those of image and those of text"):
        graph_connectivity(image, text, [0] * 30)
    with pytest.raises(InputError, match="29 labels of text for 30 rows"):
        batch_asw(image, text, ([0] * 30, [0] * 29))
