"""Definitions of the agreement of two spaces, by dense matrices and plain loops."""

import numpy as np

from support.oracles_neighbors import distances, neighbors, unit


def information_imbalance(x, y, k=1):
    apart, ranks = distances(y), []
    for i, near in enumerate(neighbors(x, k)):
        ranks += [1 + (apart[i] < apart[i, j]).sum() for j in near]
    return 2 / len(x) * np.mean(ranks)


def cycle_knn(x, y, k=10):
    near_x, near_y = neighbors(unit(x), k), neighbors(unit(y), k)
    return np.mean([any(i in near_x[j] for j in near_y[i]) for i in range(len(x))])


def cknna(x, y, k=10):
    """The dense code of Huh et al.'s repository, platonic-rep, in other words."""
    n, ones = len(x), np.ones(len(x))

    def masked(z):
        mask = np.zeros((n, n))
        np.put_along_axis(mask, neighbors(unit(z), k), 1, axis=1)
        return mask, unit(z) @ unit(z).T

    def hsic(a, b):
        sums = (ones @ a @ ones) * (ones @ b @ ones) / ((n - 1) * (n - 2))
        return (np.trace(a @ b) + sums - 2 / (n - 2) * (ones @ a @ b @ ones)) / (n * (n - 3))

    (mask_x, cos_x), (mask_y, cos_y) = masked(x), masked(y)
    both = mask_x * mask_y
    own = hsic(mask_x * cos_x, mask_x * cos_x) * hsic(mask_y * cos_y, mask_y * cos_y)
    return hsic(both * cos_x, both * cos_y) / np.sqrt(own)


AGREEMENT_ORACLES = {
    "information_imbalance": information_imbalance,
    "cycle_knn": cycle_knn,
    "cknna": cknna,
}
