"""Neighborhoods of some rows among all: the exact value with all rows, and its estimate with an error that holds."""

import numpy as np
import pytest

from clip_geometry.geometry import local_intrinsic_dimension, two_nn
from clip_geometry.registry import InputError
from clip_geometry_experiments.cai2021.contextual.measures import neighborhoods

ESTIMATORS = ("mackay", "levina-bickel", "cai2021")


def surface(n, seed, d=8):
    """Rows on a bent three-dimensional surface away from the origin, denser on one side."""
    rng = np.random.default_rng(seed)
    flat = rng.beta(2, 5, size=(n, 3))
    bent = np.concatenate([flat, np.sin(3 * flat), flat[:, :1] ** 2], axis=1)
    return bent @ rng.normal(size=(7, d)) + 2


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_of_all_rows_it_is_the_measure(metric, estimator):
    x = surface(300, 0)
    x = np.concatenate([x, x[:5], 2 * x[5:9]])  # copies, and copies in direction
    found = neighborhoods(x, k=20, metric=metric)
    expected = local_intrinsic_dimension(x, k=20, metric=metric, estimator=estimator)
    assert found.dimension(estimator).value == pytest.approx(float(expected), rel=1e-12)
    assert found.among == (300 if metric == "cosine" else 304)


def test_the_two_nearest_are_enough_for_two_nn():
    x = surface(300, 1)
    x = np.concatenate([x, x[:5]])
    found = neighborhoods(x, k=5)
    assert found.two_nn() == pytest.approx(float(two_nn(x)), rel=1e-12)
    with pytest.raises(InputError, match="equally far from every row that is kept, or no row is kept"):
        neighborhoods(np.eye(5), k=3).two_nn()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_standard_error_is_how_far_the_estimates_lie_from_the_exact_value(estimator):
    """200 draws of 40 rows: the spread of their estimates is known to 5 %, the mean error to less."""
    x = surface(1000, 2)
    exact = neighborhoods(x, k=20).dimension(estimator).value
    draws = [neighborhoods(x, k=20, of=40, seed=seed).dimension(estimator) for seed in range(200)]
    values, errors = (np.array(parts) for parts in zip(*draws, strict=True))
    assert abs(values.mean() - exact) < 4 * values.std() / np.sqrt(200) + 0.01 * exact
    assert errors.mean() == pytest.approx(values.std(), rel=0.2)


def test_among_fewer_rows_it_is_another_number():
    """Why a sample of rows is no estimate of all: what 20 neighbors see of 20 dimensions depends on their distance."""
    x = np.random.default_rng(0).normal(size=(3000, 20))
    every, estimate = (neighborhoods(x, k=20, of=of).dimension("mackay") for of in (None, 300))
    tenth = neighborhoods(x[::10], k=20).dimension("mackay").value
    assert abs(estimate.value - every.value) < 4 * estimate.standard_error
    assert abs(tenth - every.value) > 10 * estimate.standard_error


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (np.eye(5), {"k": 5}, "x has 5 rows; expected at least 6 for k = 5"),
        (np.ones((5, 2)), {"k": 2}, "x has 1 different rows among 5 rows; expected at least 3"),
    ],
)
def test_unusable_input(x, options, message):
    with pytest.raises(InputError, match=message):
        neighborhoods(x, **options)


@pytest.mark.parametrize(("estimator", "whose"), [("mackay", "every row"), ("levina-bickel", "some row")])
def test_equally_far_neighbors_have_no_dimension(estimator, whose):
    with pytest.raises(InputError, match=f"the nearest rows of {whose} are equally far"):
        neighborhoods(np.eye(5), k=3).dimension(estimator)
