"""Definitions of the shape of the eigenspectrum."""

import numpy as np


def eigenvalues(x):
    values = np.linalg.svd(x - x.mean(0), compute_uv=False)[: len(x) - 1]
    return values[values > 1e-12 * values[0]] ** 2


def alpha_req(x):
    """Stringer et al.'s weighted regression, by least squares."""
    values = eigenvalues(x)
    ranks = np.arange(1, len(values) + 1)
    return -np.polyfit(np.log(ranks), np.log(values), 1, w=ranks**-0.5)[0]  # polyfit squares its weights


DIMENSION_ORACLES = {
    "alpha_req": alpha_req,
    "nesum": lambda x: eigenvalues(x).sum() / eigenvalues(x)[0],
}
