"""Ties of two numbers; rank correlations against scipy's, their intervals and null; and Holm's correction."""

import numpy as np
import pytest
from scipy import stats

from clip_geometry_experiments.kit.significance import differ, holm, rank_correlation, spearman


@pytest.mark.parametrize("ties", [False, True])
def test_rank_correlations_and_their_p_values_are_scipys(ties):
    generator = np.random.default_rng(3)
    x = generator.normal(size=16)
    y = 0.4 * x + generator.normal(size=16)
    if ties:
        y = np.maximum(y, np.median(y))  # half of it at a floor
    found = rank_correlation(x, y)
    assert found.rho == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)

    def statistic(shuffled, axis):
        return spearman(shuffled, np.broadcast_to(y, shuffled.shape))

    shuffled = stats.permutation_test(
        (x,), statistic, vectorized=True, permutation_type="pairings", n_resamples=20_000, rng=1
    )
    # both are shares of draws, 50,000 and 20,000: four standard errors of their difference
    error = 4 * np.sqrt(shuffled.pvalue * (1 / 20_000 + 1 / 50_000))
    assert 0.001 < shuffled.pvalue < 0.2 and found.p == pytest.approx(shuffled.pvalue, abs=error)
    interval = stats.bootstrap(
        (x, y), lambda x, y, axis: spearman(x, y), paired=True, vectorized=True, method="percentile", rng=2
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(interval), abs=0.05)  # of 2,000 and 9,999 draws
    assert found.low == np.quantile(found.drawn, 0.025) and len(found.drawn) == 2000


def test_the_null_holds_its_level():
    """Of 400 pairs of independent measures, 5% have p < 0.05, within four binomial standard errors."""
    generator = np.random.default_rng(0)
    p = [rank_correlation(*generator.normal(size=(2, 8))).p for _ in range(400)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 400))


def test_a_constant_measure_orders_nothing():
    found = rank_correlation(np.ones(6), np.arange(6.0))
    assert (found.rho, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_holm_adjusts_step_by_step():
    assert holm(np.array([0.04, 0.01, 0.03, 0.9])) == pytest.approx([0.09, 0.04, 0.09, 0.9])


@pytest.mark.parametrize(
    ("values", "errors", "expected"),
    [((1.0, 1.2), (0.1, 0.0), False), ((1.0, 1.21), (0.1, 0.0), True), ((1.0, 1.25), (0.1, 0.1), False),
     ((1.0, 1.0 + 1e-15), (None, None), False), ((1.0, 9.0), (None, None), None), ((1.0, 9.0), (0.1, None), None)],
)  # fmt: skip
def test_values_within_two_standard_errors_of_their_difference_are_a_tie(values, errors, expected):
    one, other = ({"value": v, "standard_error": e} for v, e in zip(values, errors, strict=True))
    assert differ(one, other) is differ(other, one) is expected
