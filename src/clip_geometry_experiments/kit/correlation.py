"""Rank correlations over a few units (settings, maps), with an interval, a p value and Holm's correction."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

LEVEL = 0.05
DRAWS, SHUFFLES = 2000, 50_000

Values = NDArray[np.floating]


class RankCorrelation(NamedTuple):
    """Spearman's ρ of two measures over the same units.

    Attributes:
        rho: The correlation; 0 if one measure is constant.
        low, high: Bounds of its 95% bootstrap interval over units.
        p: Two-sided p value of ρ = 0: the fraction of shuffles of the units whose correlation is at least as large in
            absolute value. Like the interval, it assumes that the units are independent.
        drawn: The correlation in each bootstrap sample. The samples are the same for any two measures over the same
            number of units.
    """

    rho: float
    low: float
    high: float
    p: float
    drawn: Values


def spearman(x: Values, y: Values) -> Values:
    """Return Spearman's ρ along the last axis.

    Args:
        x: (..., units) values.
        y: (..., units) values.

    Returns:
        (...) correlations in [−1, 1]; 0 where x or y is constant, because a constant orders nothing.
    """
    x, y = (rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2 for values in (x, y))
    size = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return np.divide((x * y).sum(-1), size, out=np.zeros_like(size), where=size != 0)


def rank_correlation(x: Values, y: Values) -> RankCorrelation:
    """Return the rank correlation of two measures of the same units.

    Args:
        x: (units,) values of one measure.
        y: (units,) values of the other measure.
    """
    picks, shuffles = _samples(len(x))
    drawn = spearman(x[picks], y[picks])
    low, high = np.quantile(drawn, (LEVEL / 2, 1 - LEVEL / 2))
    x_ranks = rankdata(x) - (len(x) + 1) / 2
    y_ranks = rankdata(y)
    larger = int((np.abs(y_ranks[shuffles] @ x_ranks) >= abs(y_ranks @ x_ranks)).sum())  # sums of quarters are exact
    return RankCorrelation(float(spearman(x, y)), float(low), float(high), (1 + larger) / (1 + SHUFFLES), drawn)


@cache
def _samples(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return DRAWS bootstrap samples and SHUFFLES permutations of n units."""
    rng = np.random.default_rng(0)
    return rng.integers(n, size=(DRAWS, n)), rng.permuted(np.tile(np.arange(n), (SHUFFLES, 1)), axis=1)


def holm(p: Values) -> Values:
    """Return p values adjusted for multiple testing by Holm's method."""
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p)))), 1)
    return adjusted
