"""Distances that are too small for the distribution of the others: near copies, not near neighbors."""

import math
from typing import NamedTuple

import numpy as np

FALSE = 0.01  # expected share of natural neighbors among the marked ones
P_VALUE = 1e-4
MOST = 0.1  # of the median distance: what is farther is a neighbor, not a copy
LOW, HIGH = 0.02, 0.2  # quantiles between which the tail's power is taken
LEAST = 100  # distances


class Tail(NamedTuple):
    """limit: distance up to which rows are marked. marked: number of them. expected: natural ones among them. p_value:
    of as many natural ones or more. median: of the distances to the nearest row."""

    limit: float
    marked: int
    expected: float
    p_value: float
    median: float


def too_near(distances: np.ndarray) -> Tail | None:
    """Where the smallest of the distances to the nearest row are more than the others let expect; None if nowhere.

    Of smooth data in m dimensions, the share of distances below r falls as r^m. m is taken between two low quantiles:
    farther up, classes of different density make it too small (drawn scenes), and farther down it only grows, so that
    the extrapolation expects too many small distances rather than too few. Marked rows are left out and m is taken
    again; where more than LOW of all are copies, those below a tenth of the upper decile are left out first.
    """
    from scipy.special import pdtrc

    nearest = np.sort(distances)
    marked = int((nearest < MOST * np.quantile(nearest, 0.9)).sum()) if len(nearest) else 0
    found: Tail | None = None
    for _ in range(5):
        bulk = nearest[marked:]
        if len(bulk) < LEAST:
            return found
        low, high, median = np.quantile(bulk, [LOW, HIGH, 0.5])
        if not 0 < low < high:
            return found
        power = math.log(HIGH / LOW) / math.log(high / low)
        below = nearest[nearest < MOST * median]
        counts = np.arange(1, len(below) + 1)
        expected = len(bulk) * LOW * (below / low) ** power
        good = np.flatnonzero((expected <= FALSE * counts) & (pdtrc(counts - 1, expected) < P_VALUE))
        if not len(good):
            return None
        last = good[-1]
        chance = float(pdtrc(last, expected[last]))
        now = Tail(float(below[last]), int(counts[last]), float(expected[last]), max(chance, 1e-300), float(median))
        if now.marked == marked:
            return now
        found, marked = now, now.marked
    return found
