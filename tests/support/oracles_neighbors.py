"""Definitions of the measures of neighbors, of agreement, and of alignment and uniformity: plain loops over rows."""

import mpmath
import numpy as np
from scipy.stats import skew


def unit(x):
    return x / np.sqrt((x**2).sum(1, keepdims=True))


def distances(x):
    """Between different rows; a row's own is infinite."""
    all_pairs = np.sqrt(np.array([((x - row) ** 2).sum(1) for row in x]))
    np.fill_diagonal(all_pairs, np.inf)
    return all_pairs


def neighbors(x, k):
    """Indices of the k nearest rows, those equally near in their order."""
    return np.argsort(distances(x), axis=1, kind="stable")[:, :k]


def without_copies(x, tolerance):
    kept = x[:1]
    for row in x[1:]:
        if np.sqrt(((row - kept) ** 2).sum(1)).min() > tolerance:
            kept = np.concatenate([kept, row[None]])
    return kept


def two_nn(x, discard=0.1):
    nearest = np.sort(distances(without_copies(x, 0)), axis=1)
    mu = np.sort(nearest[:, 1] / nearest[:, 0])
    n = len(mu)
    kept = int(n * (1 - discard))
    logs, heights = np.log(mu[:kept]), -np.log(1 - np.arange(1, kept + 1) / n)
    return np.linalg.lstsq(logs[:, None], heights, rcond=None)[0][0]


def lid(x, metric="euclidean", estimator="mackay", k=100):
    rows = without_copies(x, 0) if metric == "euclidean" else without_copies(unit(x), 1e-13)
    inverses = []
    for row in distances(rows):
        r = np.sort(row)[:k]
        if estimator == "cai2021":
            measured = r**2 if metric == "euclidean" else r**2 / 2  # 1 − cos
            inverses.append(np.mean(np.log(measured[-1] / measured)))
        else:
            inverses.append(np.mean(np.log(r[-1] / r[:-1])))
    return 1 / np.mean(inverses) if estimator == "mackay" else np.mean(1 / np.array(inverses))


def hubness(x, k=10):
    found = neighbors(unit(x), k)
    counts = [(found == i).sum() for i in range(len(x))]
    return 0.0 if len(set(counts)) == 1 else skew(counts)


def hsic(x, y):
    """Unbiased, as Song et al. 2012 print it; centered kernels would give the same and lose fewer digits."""
    n, ones = len(x), np.ones(len(x))
    of_x, of_y = (z @ z.T for z in (x - x.mean(0), y - y.mean(0)))
    np.fill_diagonal(of_x, 0)
    np.fill_diagonal(of_y, 0)
    sums = (ones @ of_x @ ones) * (ones @ of_y @ ones) / ((n - 1) * (n - 2))
    return (np.trace(of_x @ of_y) + sums - 2 / (n - 2) * (ones @ of_x @ of_y @ ones)) / (n * (n - 3))


def cka(x, y):
    return hsic(x, y) / np.sqrt(hsic(x, x) * hsic(y, y))


def mutual_knn(x, y, k=10):
    found = zip(neighbors(unit(x), k), neighbors(unit(y), k), strict=True)
    return np.mean([len(set(a) & set(b)) / k for a, b in found])


def uniformity(x, t=2):
    with mpmath.workdps(40):
        squares = [((x[i] - x[j]) ** 2).sum() for i in range(len(x)) for j in range(i)]
        return float(mpmath.log(mpmath.fsum(mpmath.exp(-t * mpmath.mpf(float(s))) for s in squares) / len(squares)))


NEIGHBOR_ORACLES = {
    "alignment": lambda x, y: np.mean([((a - b) ** 2).sum() for a, b in zip(x, y, strict=True)]),
    "uniformity": uniformity,
    "two_nn": two_nn,
    "lid": lid,
    "lid[cosine]": lambda x: lid(x, "cosine"),
    "lid[cai2021]": lambda x: lid(x, "euclidean", "cai2021"),
    "lid[cai2021-cosine]": lambda x: lid(x, "cosine", "cai2021"),
    "hubness": hubness,
    "cka": cka,
    "mutual_knn": mutual_knn,
}
