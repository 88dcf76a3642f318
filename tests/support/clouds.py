"""Point clouds on which measures go wrong if they can."""

import numpy as np


def cone(n, d, rng, offset=1.5):
    """Gaussian rows around a common offset, with unequal variances: every measure has a generic value on it."""
    scales = np.linspace(0.5, 2.0, d)
    return rng.normal(size=(n, d)) * scales + offset * rng.normal(size=d) / np.sqrt(d) * np.sqrt(d / 4)


def rotation(d, rng):
    q, r = np.linalg.qr(rng.normal(size=(d, d)))
    return q * np.sign(np.diag(r))


def _far(rng):
    return rng.normal(size=(60, 6)) + 1000 * rng.normal(size=6)


def _decades(rng):
    return rng.normal(size=(60, 6)) * np.logspace(-4, 0, 6) @ rotation(6, rng)


def _tight(rng):
    centres = rng.normal(size=(4, 6))
    return centres[np.arange(60) % 4] + 1e-4 * rng.normal(size=(60, 6))


def _tight_pair(rng):
    rows = cone(60, 6, rng)
    rows[1] = rows[0] + 1e-9  # with a label of its own, see LABELS
    return rows


def _duplicates(rng):
    return np.repeat(cone(20, 6, rng), 3, axis=0)


CLOUDS = {
    "plain": lambda rng: cone(60, 6, rng),
    "mean 1000 times the spread": _far,
    "scale 1e-6": lambda rng: 1e-6 * cone(60, 6, rng),
    "scale 1e6": lambda rng: 1e6 * cone(60, 6, rng),
    "spectrum over four decades": _decades,
    "fewer rows than dimensions": lambda rng: cone(8, 20, rng),
    "tight clusters": _tight,
    "two tight points with different labels": _tight_pair,
    "duplicated rows": _duplicates,
}


def labels_for(rows):
    """Four unequal classes; neighbours in the list have different ones."""
    return np.arange(len(rows)) * 7 % 11 % 4


def arguments(measure, cloud, seed=0):
    """What the measure takes, from a named cloud: rows; rows and labels; or two sets."""
    rng = np.random.default_rng([seed, list(CLOUDS).index(cloud)])
    x = CLOUDS[cloud](rng)
    if measure.across:
        shift = 0.7 * x.std() * rng.normal(size=x.shape[1])
        return x, x[::-1] * 0.5 + x * 0.5 + shift
    if measure.takes == "labelled rows":
        return x, labels_for(x)
    return (x,)
