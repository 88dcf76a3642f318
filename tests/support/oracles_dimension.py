"""Definitions of dimensions by neighbors at a scale and by angles, and of the shape of the eigenspectrum."""

import numpy as np
from scipy.optimize import brentq

from support.oracles_neighbors import distances, neighbors, without_copies


def gride(x, k=8):
    """The root of the derivative, term by term, of the log-likelihood of Denti et al."""
    nearest = np.sort(distances(without_copies(x, 0)), axis=1)
    mu = nearest[:, 2 * k - 1] / nearest[:, k - 1]
    log, above = np.log(mu), mu > 1

    def slope(d):
        inner = np.where(above, log / -np.expm1(-d * np.where(above, log, 1)), 1 / d)  # (μ^d − 1)' / (μ^d − 1)
        return (1 / d + (k - 1) * inner - (2 * k - 1) * log).sum()

    return brentq(slope, 1e-9, 1e9, xtol=1e-13, rtol=1e-14)


def abid(x, k=50):
    rows, found = without_copies(x, 0), []
    for row, near in zip(rows, neighbors(rows, k), strict=True):
        arrows = rows[near] - row
        cosines = arrows @ arrows.T / np.linalg.norm(arrows, axis=1)[:, None] / np.linalg.norm(arrows, axis=1)
        found.append(1 / np.mean(cosines**2))
    return np.mean(found)


def eigenvalues(x):
    values = np.linalg.svd(x - x.mean(0), compute_uv=False)[: len(x) - 1]
    return values[values > 1e-12 * values[0]] ** 2


def alpha_req(x):
    """Stringer et al.'s weighted regression, by least squares."""
    values = eigenvalues(x)
    ranks = np.arange(1, len(values) + 1)
    return -np.polyfit(np.log(ranks), np.log(values), 1, w=ranks**-0.5)[0]  # polyfit squares its weights


DIMENSION_ORACLES = {
    "gride": gride,
    "gride[2]": lambda x: gride(x, 2),
    "gride[32]": lambda x: gride(x, 32),
    "abid": abid,
    "alpha_req": alpha_req,
    "nesum": lambda x: eigenvalues(x).sum() / eigenvalues(x)[0],
}
