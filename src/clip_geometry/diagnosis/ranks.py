"""The share of random pairs among pairs, by the flat tail of the ranks of their partners."""

import math
from typing import NamedTuple

import numpy as np

TAILS = (0.5, 0.6, 0.7, 0.8, 0.9)
FLAT = 1.64  # standard deviations: a flat tail is rejected with p = 0.05
LIKELIHOOD = 20.0  # log ratio by which random pairs have to explain the ranks better than a weak model


class RandomShare(NamedTuple):
    """start: percentile from which on the tail is flat. beyond: queries beyond it, on average of both directions.

    share: of random pairs, beyond/(1 − start)/n; at most this, since pairs that belong together can rank as low. error:
    its standard error. gain: log likelihood of the percentiles with random pairs, less that of a weak model without.
    """

    start: float
    beyond: float
    share: float
    error: float
    gain: float

    @property
    def separate(self) -> bool:
        """Whether the random pairs are apart from the others, rather than the tail of a weak model."""
        return self.gain > LIKELIHOOD


def random_share(percentiles: np.ndarray, least: float) -> RandomShare:
    """Estimate the share of random pairs.

    Percentiles of random pairs are uniform, whatever the model, so that their density in the flat tail of all is their
    share (Storey's π₀). A tail that falls is that of a weak model. A short tail is flat by chance; random pairs have to
    explain all percentiles better: a weak model's are normal on the probit scale, with a mean below 0 and a deviation
    of at most 1 (scores with Gaussian noise); random pairs add a standard normal part.

    Args:
        percentiles: (q, 2), in both directions.
        least: The smallest step of a percentile.
    """
    from scipy.special import ndtri

    values = percentiles.ravel()
    n = len(percentiles)
    # both directions of a pair are nearly equal: n pairs, not 2 n values
    start = next((start for start in TAILS if _fall(values, start) < FLAT), TAILS[-1])
    beyond = float((values > start).sum() / 2)
    share = min(1.0, beyond / (1 - start) / n)
    error = math.sqrt(max(beyond, 1.0) * (1 - beyond / n)) / (1 - start) / n
    scores = ndtri(np.clip(values + least / 2, least / 2, 1 - least / 2))
    gain = (_log_likelihood(scores, mixed=True) - _log_likelihood(scores, mixed=False)) / 2
    return RandomShare(start, beyond, share, error, gain)


def _fall(values: np.ndarray, start: float) -> float:
    """By how many standard deviations the values beyond `start` lie below the middle of the tail, on average."""
    tail = values[values > start]
    return (0.5 - (tail.mean() - start) / (1 - start)) * math.sqrt(12 * len(tail) / 2) if len(tail) else 0.0


def _log_likelihood(scores: np.ndarray, mixed: bool) -> float:
    """The largest log likelihood of a normal part with mean at most 0 and deviation at most 1, by the EM algorithm;
    mixed: beside a standard normal one."""
    share = 0.5 if mixed else 0.0
    own = scores <= np.median(scores) if mixed else np.ones(len(scores), bool)
    mean, deviation = min(scores[own].mean(), 0.0), min(max(scores[own].std(), 0.1), 1.0)
    flat = np.exp(-(scores**2) / 2)
    total = -np.inf
    for _ in range(200):
        matched = np.exp(-(((scores - mean) / deviation) ** 2) / 2) / deviation
        density = share * flat + (1 - share) * matched
        before, total = total, float(np.log(np.maximum(density, 1e-300)).sum())
        if total - before < 1e-4 * len(scores) ** 0.5:
            break
        weights = (1 - share) * matched / np.maximum(density, 1e-300)
        share = 1 - weights.mean() if mixed else 0.0
        mean = min(float(np.average(scores, weights=weights)), 0.0)
        deviation = float(np.sqrt(np.average((scores - mean) ** 2, weights=weights)))
        deviation = min(max(deviation, 0.1), 1.0)
    return total
