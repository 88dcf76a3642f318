import numpy as np
import pytest
from scipy.stats import skew
from sklearn.neighbors import NearestNeighbors

from clip_geometry.geometry import cross_hubs, hubness, hubs
from clip_geometry.registry import InputError
from support.clouds import cone


@pytest.mark.parametrize("k", [1, 5, 30])
def test_is_the_skewness_of_the_counts_that_scikit_learn_finds(k):
    x = cone(400, 20, np.random.default_rng(k))
    result = NearestNeighbors(n_neighbors=k, metric="cosine").fit(x).kneighbors(return_distance=False)
    assert float(hubness(x, k=k)) == pytest.approx(skew(np.bincount(result.ravel(), minlength=400)), rel=1e-9)


@pytest.mark.parametrize("k", [2, 4])
def test_rows_found_equally_often_have_no_skewness(k):
    """A regular polygon: each row is the neighbor of the k/2 rows on both its sides; and all rows, at k = n − 1."""
    angles = np.arange(20) * 2 * np.pi / 20
    polygon = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert float(hubness(polygon, k=k)) == 0
    assert float(hubness(cone(k + 1, 3, np.random.default_rng(0)), k=k)) == 0


def hoover(counts):
    """As scikit-hubness 0.21 has it."""
    return 0.5 * np.abs(counts - counts.mean()).sum() / counts.sum()


@pytest.mark.parametrize("k", [1, 5, 30])
def test_it_is_that_of_the_counts_that_scikit_learn_finds(k):
    rng = np.random.default_rng(k)
    x, y = cone(400, 20, rng), cone(150, 20, rng)
    within = NearestNeighbors(n_neighbors=k, metric="cosine").fit(x).kneighbors(return_distance=False)
    across = NearestNeighbors(n_neighbors=k, metric="cosine").fit(y).kneighbors(x, return_distance=False)
    back = NearestNeighbors(n_neighbors=k, metric="cosine").fit(x).kneighbors(y, return_distance=False)
    cases = ((hubs(x, k=k), within, 400), (cross_hubs(x, y, k=k), across, 150))
    for result, neighbors, rows in (*cases, (cross_hubs(x, y, k=k, queries="text"), back, 400)):
        counts = np.bincount(neighbors.ravel(), minlength=rows)
        assert result.robin_hood == pytest.approx(hoover(counts), rel=1e-9)
        assert result.antihub_share == pytest.approx(np.mean(counts == 0), abs=1e-12)


def test_one_text_that_every_image_finds():
    rng = np.random.default_rng(0)
    image = np.array([1.0, 0, 0]) + 0.01 * rng.normal(size=(50, 3))
    text = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0], [0, -1, 0]])
    assert cross_hubs(image, text, k=1) == pytest.approx((0.8, 0.8))
    assert cross_hubs(image, text, k=5) == (0, 0)  # all texts of every image


ROWS = cone(20, 3, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: hubness(ROWS[:10]), "x has 10 rows; expected at least 11 for k = 10 neighbors, or a smaller k"),
        (lambda: hubness(ROWS, k=0), "k = 0; expected a whole number from 1 on, of neighbors"),
        (
            lambda: cross_hubs(ROWS, ROWS[:9]),
            "text has 9 rows; expected at least 10 for k = 10 neighbors, or a smaller",
        ),
        (lambda: cross_hubs(ROWS[:9], ROWS, queries="text"), "image has 9 rows; expected at least 10"),
        (lambda: cross_hubs(ROWS, ROWS, queries="images"), "queries 'images' is unknown; did you mean 'image'"),
        (lambda: cross_hubs(ROWS[:, :1], ROWS[:, :1]), "image has 1 column; expected at least 2"),
        (lambda: cross_hubs(ROWS, np.ones((20, 3))), "rows of text are equal"),
    ],
)
def test_errors(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def test_one_hub_has_the_skewness_of_one_count():
    """Three spokes around an axis: it is the nearest row of each; its own, of three equally near, is the first."""
    x = np.array([[1, 0, 0, 2.0], [0, 1, 0, 2.0], [0, 0, 1, 2.0], [1 / 3, 1 / 3, 1 / 3, 2.0]])
    assert float(hubness(x, k=1)) == pytest.approx(skew([1, 0, 0, 3]), rel=1e-12)


def test_one_hub_of_four_rows_has_to_give_up_half_of_its_places():
    """Three spokes around an axis, k = 1: counts 3, 1, 0, 0, so that half of four places have to move."""
    x = np.array([[1, 0, 0, 2.0], [0, 1, 0, 2.0], [0, 0, 1, 2.0], [1 / 3, 1 / 3, 1 / 3, 2.0]])
    assert hubs(x, k=1) == (0.5, 0.5)
