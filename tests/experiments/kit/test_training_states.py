"""Trajectories go to rows and back, and correlations over them are scipy's, or say why there are none."""

import numpy as np
import pytest
from scipy import stats

from clip_geometry_experiments.kit.training import correlation_rows, correlations, curves_by, means_between, trajectory

X, Y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([5.0, 3.0, 4.0, 0.5])


def test_a_curve_comes_back_with_nan_where_it_is_undefined():
    values = [0.5, float("nan"), float("inf")]
    assert trajectory(values) == [0.5, None, None]
    rows = [{"measure": name, "trajectory": trajectory(values)} for name in "aba"] + [{"measure": "c"}]
    found = curves_by(lambda row: row["measure"], rows)
    assert {key: each.shape for key, each in found.items()} == {"a": (2, 3), "b": (1, 3)}
    assert np.array_equal(found["b"], [[0.5, np.nan, np.nan]], equal_nan=True)


def test_losses_are_averaged_between_measured_steps():
    assert means_between([4.0, 2.0, 1.0], [0, 1, 3]) == [None, 4.0, 1.5]


def test_correlations_are_those_of_scipy():
    expected = {"pearson": stats.pearsonr(X, Y), "spearman": stats.spearmanr(X, Y)}
    expected["pearson_log"] = stats.pearsonr(X, np.log(Y))
    found = correlations(X, Y)
    assert found == pytest.approx({name: each.statistic for name, each in expected.items()})
    assert found["pearson"] == pytest.approx(-0.8357, abs=1e-4)


def test_numbers_that_do_not_vary_or_are_undefined_have_no_correlation():
    assert correlations(np.ones(4), Y) == dict.fromkeys(("pearson", "spearman", "pearson_log"))
    assert correlations(X, -Y)["pearson_log"] is None and correlations(X, -Y)["pearson"] > 0
    assert correlations(X, np.array([1.0, 2.0, np.nan, 3.0]))["spearman"] is None
    defined, undefined = correlation_rows("toy", X, Y, ("pearson",), at={}), correlation_rows("toy", X, 0 * Y, at={})
    assert "note" not in next(defined) and next(undefined)["note"] == "one of them is constant or not defined"
