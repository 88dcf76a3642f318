"""Whether two numbers differ beyond their errors, and rank correlations over a few units such as settings or maps."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from clip_geometry.display.numbers import as_number

EQUAL = 1e-12  # rounding in float64 may turn an exact 0 into a value of this size
TIE = 2.0  # two values are a tie up to this many standard errors of their difference


def differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Return whether the values of two rows differ by more than two standard errors of their difference.

    The rows do not say how their errors depend on each other, so the samples are assumed to be independent. This errs
    on the side of missing a difference rather than calling a tie one. A constant has a standard error of 0.

    Args:
        one: A row with `value` and `standard_error`.
        other: A row with `value` and `standard_error`.

    Returns:
        True for a difference, False for a tie. None, which is neither, if the values differ and a standard error is
        unknown.
    """
    step = abs(one["value"] - other["value"])
    if step <= EQUAL:
        return False
    errors = [as_number(row.get("standard_error")) for row in (one, other)]
    known = [error for error in errors if error is not None]
    return step > TIE * math.hypot(*known) if len(known) == len(errors) else None


# --- rank correlations

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
