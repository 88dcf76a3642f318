import numpy as np
import pytest

from clip_geometry.geometry import clisi, ilisi, lisi
from clip_geometry.registry import InputError
from support.clouds import cone
from support.oracles_modalities import lisi as plain_lisi


def korsunsky(distances, labels, perplexity, tolerance=1e-5):
    """The loop of the authors' compute_simpson_index, as Harmony and scib-metrics have it."""
    beta, low, high = 1.0, -np.inf, np.inf
    for _ in range(50):
        p = np.exp(-distances * beta)
        entropy = np.log(p.sum()) + beta * (distances * p).sum() / p.sum()
        if abs(entropy - np.log(perplexity)) < tolerance:
            break
        if entropy > np.log(perplexity):
            low, beta = beta, 2 * beta if high == np.inf else (beta + high) / 2
        else:
            high, beta = beta, beta / 2 if low == -np.inf else (beta + low) / 2
    p /= p.sum()
    return sum(p[labels == label].sum() ** 2 for label in np.unique(labels))


@pytest.mark.parametrize(("k", "classes"), [(90, 2), (30, 5), (12, 3)])
def test_it_is_the_published_loop_but_for_its_tolerance(k, classes):
    rng = np.random.default_rng(k)
    x = cone(200, 8, rng)
    labels = rng.integers(0, classes, 200)
    expected = []
    for i, row in enumerate(x):
        r = np.sqrt(((x - row) ** 2).sum(1))
        near = [j for j in np.argsort(r) if j != i][:k]
        expected.append(1 / korsunsky(r[near], labels[near], k / 3))
    result = lisi(x, labels, k=k)
    np.testing.assert_allclose(result, expected, rtol=1e-4)
    np.testing.assert_allclose(result, plain_lisi(x, labels, k), rtol=1e-9)
    assert result.min() >= 1 and result.max() <= classes


def test_copies_beyond_the_perplexity_weigh_the_same():
    """Forty rows in one place: no β gives their 39 distances of 0 a perplexity of 10."""
    x = np.concatenate([np.zeros((40, 2)), 5 + np.random.default_rng(0).normal(size=(40, 2))])
    labels = np.arange(80) % 4 == 0
    result = lisi(x, labels, k=30)
    for i in range(40):
        near = [j for j in range(40) if j != i][:30]
        shares = np.bincount(labels[near].astype(int), minlength=2) / 30
        assert result[i] == pytest.approx(1 / (shares**2).sum(), rel=1e-12)


def test_errors():
    x = cone(100, 3, np.random.default_rng(0))
    with pytest.raises(InputError, match="the union of image and text has 90 rows; expected at least 91 for k = 90"):
        ilisi(x[:45], x[:45])
    with pytest.raises(InputError, match="k = 2; expected a whole number from 3 on, of neighbors"):
        lisi(x, np.arange(100) % 2, k=2)
    with pytest.raises(InputError, match="99 labels for 100 rows"):
        clisi(x, [0, 1] * 49 + [1])
    with pytest.raises(InputError, match="the union of image and text are equal"):
        ilisi(np.ones((60, 3)), np.ones((60, 3)))


def test_equal_rows_have_no_neighborhoods():
    rows = np.tile([0.1, 0.7, 1 / 3], (40, 1))
    with pytest.raises(InputError, match="all 40 rows of x are equal"):
        clisi(rows, [0, 1] * 20, k=5)
    with pytest.raises(InputError, match="all 40 rows of the union of image and text are equal"):
        ilisi(rows[:20], rows[20:], k=5)


def test_separate_labels_are_one_and_equal_parts_all():
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(400, 3)), np.arange(400) % 4
    apart = x + 100 * np.eye(4, 3)[labels]
    np.testing.assert_allclose(lisi(apart, labels, k=90), 1, rtol=1e-12)
    assert clisi(apart, labels) == pytest.approx(1, abs=1e-12)
    assert 3 < np.median(lisi(x, labels)) < 4
    image, text = x[:200], x[200:]
    assert ilisi(image, text) > 0.8
    assert ilisi(image, text + 100) == pytest.approx(0, abs=1e-12)
