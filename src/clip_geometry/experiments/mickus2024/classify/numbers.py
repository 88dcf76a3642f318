"""What the classification experiment says beyond the measures of a state: correlations, spread, sizes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SOURCE = "Mickus et al. 2024, arXiv:2402.03191"
KINDS = ("silhouette", "isoscore")

Values = NDArray[np.float64]


def compared(names: Sequence[str]) -> list[tuple[str, str]]:
    """(silhouette, isoscore): every variant of the one that was measured with the first of the other."""
    silhouettes, scores = ([name for name in names if name.partition("[")[0] == kind] for kind in KINDS)
    return [
        (silhouette, score)
        for silhouette in silhouettes
        for score in scores
        if silhouette == silhouettes[0] or score == scores[0]
    ]


def correlations(x: Values, y: Values) -> Iterator[tuple[str, float | None]]:
    """(name, value) of the correlations of x and y, and of x and log y; None where one of them does not vary or is
    not defined."""
    from scipy import stats

    positive = bool((y > 0).all())
    yield "classify.pearson", _defined(stats.pearsonr, x, y)
    yield "classify.spearman", _defined(stats.spearmanr, x, y)
    yield "classify.pearson_log", _defined(stats.pearsonr, x, np.log(y)) if positive else None


def _defined(correlate: Callable[..., Any], x: Values, y: Values) -> float | None:
    usable = np.isfinite(x).all() and np.isfinite(y).all() and len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
    return float(correlate(x, y).statistic) if usable else None


def deviations(values: NDArray[np.float64]) -> dict[str, float]:
    """Standard deviation over seeds (ddof 1) of (seeds, states) values: the largest of all states, and their mean."""
    spread = values.std(axis=0, ddof=1)
    return {"classify.largest_deviation": float(spread.max()), "classify.mean_deviation": float(spread.mean())}
