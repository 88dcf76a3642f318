"""Definitions of the measures of two modalities as distributions, of their mixing, and of hubs: from other libraries,
or in plain loops written from the papers' formulas."""

import mpmath
import numpy as np
import ot
from scipy.optimize import brentq

from clip_geometry.geometry.statistics.distributions import random_directions
from support.oracles_neighbors import neighbors, unit


def pairwise(x, y):
    return np.array([np.sqrt(((y - row) ** 2).sum(1)) for row in x])


def energy_distance(x, y, center=False):
    if center:
        x, y = x - x.mean(0), y - y.mean(0)
    return 2 * pairwise(x, y).mean() - pairwise(x, x).mean() - pairwise(y, y).mean()


def sliced_squares(x, y):
    """‖difference of the means‖²/d, and POT's squared distance about the means along our directions."""
    axes = random_directions(x.shape[1], 512, 0).numpy()
    rest = ot.sliced_wasserstein_distance(x - x.mean(0), y - y.mean(0), projections=axes, p=2) ** 2
    return ((x.mean(0) - y.mean(0)) ** 2).mean(), rest


def cross_uniformity(x, y, t=2):
    with mpmath.workdps(40):
        squares = [((a - b) ** 2).sum() for i, a in enumerate(x) for j, b in enumerate(y) if i != j]
        return float(mpmath.log(mpmath.fsum(mpmath.exp(-t * mpmath.mpf(float(s))) for s in squares) / len(squares)))


def spectral_discrepancy(x, y):
    shares = []
    for rows in (x, y):
        values = np.zeros(max(x.shape[1], y.shape[1]))
        values[: rows.shape[1]] = np.linalg.eigvalsh(np.atleast_2d(np.cov(rows.T)))[::-1]
        shares.append(values / values.sum())
    return np.abs(shares[0] - shares[1]).sum() / 2


def lisi(x, labels, k=90):
    """Korsunsky et al. 2019, one row after the other, with Brent's method in place of their bisection."""
    labels, found, values = np.asarray(labels), neighbors(x, k), []
    for row, near in zip(x, found, strict=True):
        r = np.sqrt(((x[near] - row) ** 2).sum(1))
        values.append(1 / simpson(r, labels[near], k / 3))
    return np.array(values)


def simpson(r, labels, perplexity):
    gaps = (r - r.min()) / max((r - r.min()).max(), 1e-300)

    def weights(log_beta):
        p = np.exp(-np.exp(log_beta) * gaps)
        return p / p.sum()

    def excess(log_beta):
        p = weights(log_beta)
        return -(p * np.log(np.where(p > 0, p, 1))).sum() - np.log(perplexity)

    if (gaps == 0).sum() >= perplexity:
        p = (gaps == 0) / (gaps == 0).sum()
    else:
        p = weights(brentq(excess, -5, 60, xtol=1e-15, rtol=1e-15))
    return sum(p[labels == label].sum() ** 2 for label in set(labels.tolist()))


def together(x, y):
    return np.concatenate([x, y]), np.repeat([0, 1], [len(x), len(y)])


def clisi(x, labels):
    count = len(set(np.asarray(labels).tolist()))
    return (count - np.median(lisi(x, labels))) / (count - 1)


def occurrences(x, queries=None, k=10):
    if queries is None:
        found = neighbors(unit(x), k)
    else:
        found = np.argsort(pairwise(unit(queries), unit(x)), axis=1, kind="stable")[:, :k]
    return np.array([(found == i).sum() for i in range(len(x))])


def robin_hood(counts):
    """The largest distance of the Lorenz curve from equality."""
    lorenz = np.concatenate([[0], np.sort(counts).cumsum() / counts.sum()])
    return (np.linspace(0, 1, len(lorenz)) - lorenz).max()


MODALITY_ORACLES = {
    "energy_distance": energy_distance,
    "energy_distance[centered]": lambda x, y: energy_distance(x, y, center=True),
    "sliced_wasserstein": lambda x, y: np.sqrt(sum(sliced_squares(x, y))),
    "sliced_wasserstein[centered]": lambda x, y: np.sqrt(sliced_squares(x, y)[1]),
    "gap_shift_share": lambda x, y: sliced_squares(x, y)[0] / sum(sliced_squares(x, y)),
    "cross_uniformity": cross_uniformity,
    "spectral_discrepancy": spectral_discrepancy,
    "ilisi": lambda x, y: np.median(lisi(*together(x, y))) - 1,
    "clisi": clisi,
    "robin_hood": lambda x: robin_hood(occurrences(x)),
    "robin_hood[image_to_text]": lambda x, y: robin_hood(occurrences(y, x)),
    "robin_hood[text_to_image]": lambda x, y: robin_hood(occurrences(x, y)),
    "antihub_share": lambda x: np.mean(occurrences(x) == 0),
    "antihub_share[image_to_text]": lambda x, y: np.mean(occurrences(y, x) == 0),
    "antihub_share[text_to_image]": lambda x, y: np.mean(occurrences(x, y) == 0),
}
