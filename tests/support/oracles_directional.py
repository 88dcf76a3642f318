"""Definitions of the statistics of isotropy tests."""

import mpmath
import numpy as np

from support.oracles_neighbors import unit


def over_pairs(x):
    """Cosines of all pairs i ≠ j of rows, both ways."""
    cosines = unit(x) @ unit(x).T
    return cosines[~np.eye(len(x), dtype=bool)]


def rayleigh(x):
    """The sum of the cosines, which are uncorrelated and have variance 1/d."""
    n, d = x.shape
    return over_pairs(x).sum() / 2 / np.sqrt(n * (n - 1) / 2 / d)


def bingham(x):
    """The sum of cos² − 1/d, uncorrelated as well; cos² is Beta(1/2, (d − 1)/2)."""
    n, d = x.shape
    variance = 0.5 * (d - 1) / 2 / ((d / 2) ** 2 * (d / 2 + 1))
    return (over_pairs(x) ** 2 - 1 / d).sum() / 2 / np.sqrt(n * (n - 1) / 2 * variance)


def wishart_square(n, d):
    """E[(tr W²)²] by Wick's formula: over the pairings of eight Gaussians, n to the loops of one index times d."""
    # W = ZᵀZ, tr W² = Σ z_ai z_aj z_bj z_bi: entries (a, i), (a, j), (b, j), (b, i), and the same with c, d, k, l
    rows, columns = (0, 0, 1, 1, 2, 2, 3, 3), (0, 1, 1, 0, 2, 3, 3, 2)

    def pairings(left):
        if not left:
            yield []
            return
        for k in range(1, len(left)):
            for rest in pairings(left[1:k] + left[k + 1 :]):
                yield [(left[0], left[k]), *rest]

    def loops(labels, pairing):
        group = list(range(4))
        for p, q in pairing:
            a, b = group[labels[p]], group[labels[q]]
            group = [a if each == b else each for each in group]
        return len(set(group))

    return sum(n ** loops(rows, p) * d ** loops(columns, p) for p in pairings(list(range(8))))


def sphericity(x):
    n, d = len(x) - 1, x.shape[1]
    squares = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    size = n * d
    mean = (n + d + 1) / (size + 2)
    with mpmath.workdps(40):
        second = mpmath.mpf(wishart_square(n, d)) / (size * (size + 2) * (size + 4) * (size + 6))
        deviation = mpmath.sqrt(second - (mpmath.mpf(n + d + 1) / (size + 2)) ** 2)
        return float(((squares**2).sum() / squares.sum() ** 2 - mean) / deviation)


DIRECTIONAL_ORACLES = {
    "rayleigh": rayleigh,
    "bingham": bingham,
    "sphericity": sphericity,
}
