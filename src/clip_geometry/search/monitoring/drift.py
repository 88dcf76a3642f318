"""How far the mean of a set has moved, with an interval."""

import math
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from clip_geometry.search.monitoring.profile import Observed, Profile


class Drift(NamedTuple):
    """Distance of the means of the unit rows, in standard deviations of the rows, and its interval."""

    size: float
    low: float
    high: float


def drift(profile: Profile, seen: Observed, error: float) -> Drift:
    """Return the drift and an interval that misses the true drift with a probability of at most `error`.

    The difference of the two means is the true one plus noise. The norm of the noise is below its 1 − error quantile,
    that of a scaled χ² with the same mean and variance (Satterthwaite), so by the triangle inequality the norm of the
    true difference lies within this quantile of the norm of the observed one.
    """
    mean = profile.mean.values.astype(np.float64)
    variance = max(1 - float(mean @ mean), 1e-12)
    noise = 1 / profile.n + 1 / max(1, int(seen.valid.sum()))
    freedom = 1 / profile.concentration
    bound = math.sqrt(noise / freedom * float(chi2.isf(error, freedom)))
    size = float(np.linalg.norm(seen.mean - mean)) / math.sqrt(variance)
    return Drift(size, max(0.0, size - bound), size + bound)
