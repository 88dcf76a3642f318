"""Ranks of several repairs over several data sets: Friedman's test and Nemenyi's critical difference (Demšar 2006)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, f, rankdata, studentized_range

LEVEL = 0.05


class Ranking(NamedTuple):
    """Repairs ranked over data sets.

    Attributes:
        names: Of the repairs, the best first.
        mean: The mean rank of each over the data sets, from 1 on.
        sets: Number N of data sets.
        p: Of Iman and Davenport's F, a less conservative form of Friedman's test that no repair differs.
        difference: Nemenyi's critical difference at the level 0.05: mean ranks that are not further apart are a tie.
    """

    names: tuple[str, ...]
    mean: tuple[float, ...]
    sets: int
    p: float
    difference: float

    def ties(self) -> list[tuple[int, int]]:
        """Return the places (first, last) of every largest run of repairs that are no further apart than that."""
        found: list[tuple[int, int]] = []
        for first, rank in enumerate(self.mean):
            last = int(np.searchsorted(self.mean, rank + self.difference, side="right")) - 1
            if last > first and (not found or last > found[-1][1]):
                found.append((first, last))
        return found

    def best(self) -> tuple[str, ...]:
        """Return the repairs that are no further from the first than the critical difference."""
        return tuple(n for n, rank in zip(self.names, self.mean, strict=True) if rank <= self.mean[0] + self.difference)

    def rank(self, name: str) -> float:
        return self.mean[self.names.index(name)]


def ranking(names: Sequence[str], scores: NDArray[np.floating]) -> Ranking:
    """Rank repairs by scores, (data sets, repairs), higher is better; equal scores share their mean rank.

    χ² = Σ_j (R_j − (k + 1)/2)² · (k − 1)N / Σ_j var, corrected for ties; F = (N − 1)χ²/(N(k − 1) − χ²); the critical
    difference is q √(k(k + 1)/6N), q the quantile of the studentized range for k means, divided by √2.
    """
    n, k = scores.shape
    ranks = rankdata(-scores, axis=1)
    means = ranks.mean(0)
    spread = float(((ranks - (k + 1) / 2) ** 2).sum()) / (n * (k - 1))  # (k + 1)k/12 without ties
    chi = n * float(((means - (k + 1) / 2) ** 2).sum()) / spread if spread else 0.0
    rest = n * (k - 1) - chi
    p = float(f.sf((n - 1) * chi / rest, k - 1, (k - 1) * (n - 1))) if rest > 1e-9 else float(chi2.sf(chi, k - 1))
    order = np.argsort(means, kind="stable")
    best_first = tuple(str(names[j]) for j in order)
    return Ranking(best_first, tuple(means[order].tolist()), n, p, critical_difference(k, n))


def critical_difference(k: int, n: int, level: float = LEVEL) -> float:
    """Return Nemenyi's critical difference of the mean ranks of k repairs over n data sets."""
    return float(studentized_range.ppf(1 - level, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n)))


def resampled_error(values: NDArray[np.floating], ratio: float) -> float:
    """Return the standard error of a mean over J random splits, √((1/J + ratio) s²), s² their variance.

    Splits overlap, so that s²/J would be too small. Source: Nadeau and Bengio 2003, doi:10.1023/A:1024068626366.

    Args:
        values: Of the splits, (J,), J ≥ 2.
        ratio: Number of judged rows in proportion to those that a repair is fitted on.
    """
    return float(np.sqrt((1 / len(values) + ratio) * values.var(ddof=1)))
