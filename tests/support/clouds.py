"""Point clouds on which measures go wrong if they can."""

import numpy as np

from clip_geometry.geometry import measures

# those of geometry/; what evaluators and reference implementations register is tested with them
MEASURES = {
    name: each
    for name, each in measures.items()
    if not each.evaluator and not each.function.__module__.endswith("references")
}


def cone(n, d, rng, offset=1.5):
    """Gaussian rows around a common offset, with unequal variances: every measure has a generic value on it."""
    scales = np.linspace(0.5, 2.0, d)
    return rng.normal(size=(n, d)) * scales + offset * rng.normal(size=d) / np.sqrt(d) * np.sqrt(d / 4)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def rotation(d, rng):
    q, r = np.linalg.qr(rng.normal(size=(d, d)))
    return q * np.sign(np.diag(r))


def _far(n, rng):
    return rng.normal(size=(n, 6)) + 1000 * rng.normal(size=6)


def _decades(n, rng):
    return rng.normal(size=(n, 6)) * np.logspace(-4, 0, 6) @ rotation(6, rng)


def _tight(n, rng):
    centres = rng.normal(size=(4, 6))
    return centres[np.arange(n) % 4] + 1e-4 * rng.normal(size=(n, 6))


def _tight_pair(n, rng):
    rows = cone(n, 6, rng)
    rows[1] = rows[0] + 1e-9  # with a label of its own, see labels_for
    return rows


# n: 60, or more for measures that need more
CLOUDS = {
    "plain": lambda n, rng: cone(n, 6, rng),
    "mean 1000 times the spread": _far,
    "scale 1e-6": lambda n, rng: 1e-6 * cone(n, 6, rng),
    "scale 1e6": lambda n, rng: 1e6 * cone(n, 6, rng),
    "spectrum over four decades": _decades,
    "fewer rows than dimensions": lambda n, rng: cone(n // 3, n // 2, rng),
    "tight clusters": _tight,
    "two tight points with different labels": _tight_pair,
    "duplicated rows": lambda n, rng: np.repeat(cone(n // 3, 6, rng), 3, axis=0),
}


def labels_for(rows):
    """Four unequal classes; neighbors in the list have different ones."""
    return np.arange(len(rows)) * 7 % 11 % 4


def class_texts(x, labels, rng):
    """One row per class, near its mean as far as the spread of the rows allows."""
    means = np.array([x[labels == label].mean(0) for label in range(labels.max() + 1)])
    return means + 0.5 * x.std() * rng.normal(size=means.shape)


def row_places(measure):
    """Which of the arguments are rows."""
    return [place for place, name in enumerate(measure.inputs.arguments) if name != "labels"]


def size_for(measure):
    """Rows of the clouds: enough for the measure in the smallest of them, which has a third."""
    return max(60, 3 * measure.least_n)


def arguments(measure, cloud, seed=0):
    """What the measure takes, from a named cloud: rows; rows and labels; two sets; or rows, labels and class texts."""
    rng = np.random.default_rng([seed, list(CLOUDS).index(cloud)])
    x = CLOUDS[cloud](size_for(measure), rng)
    if measure.takes == "classes":
        labels = labels_for(x)
        return x, labels, class_texts(x, labels, rng)
    if measure.inputs.across:
        shift = 0.7 * x.std() * rng.normal(size=x.shape[1])
        return x, 0.4 * x[::-1] + 0.6 * x + shift
    if measure.takes == "labeled rows":
        return x, labels_for(x)
    return (x,)
