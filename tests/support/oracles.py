"""The definition of every measure, written as plainly as possible: slow, obvious, float64, from other libraries.

One row per registered measure. To add a measure, add its row.
"""

import numpy as np
from scipy.spatial.distance import cdist, pdist
from scipy.special import logsumexp
from sklearn.metrics import silhouette_score

from support.oracles_agreement import AGREEMENT_ORACLES
from support.oracles_classes import CLASS_ORACLES
from support.oracles_dimension import DIMENSION_ORACLES
from support.oracles_directional import DIRECTIONAL_ORACLES
from support.oracles_modalities import MODALITY_ORACLES
from support.oracles_neighbors import NEIGHBOR_ORACLES
from support.oracles_objectives import COSINE_ORACLES


def unit(x):
    return x / np.sqrt((x**2).sum(1, keepdims=True))


def eigenvectors(x):
    # those of xᵀx, ascending; without squaring, so that small ones keep their digits
    return np.linalg.svd(x)[2].T[:, ::-1]


def log_z(x, directions):
    return np.array([logsumexp(x @ v) for v in directions])


def partition(x, convention):
    """(i1, i2) of the textbook loop over directions."""
    vectors = eigenvectors(x)
    canonical = vectors * np.where(x.mean(0) @ vectors < 0, -1, 1)
    directions = {
        "invariant": [*vectors.T, *(-vectors.T)],
        "canonical": list(canonical.T),
        "rows": list(canonical),
    }[convention]
    logs = log_z(x, directions)
    z = np.exp(logs - logs.max())
    return z.min() / z.max(), z.std() / z.mean()


def eigenvalues(x):
    # singular values of the centered rows: no squaring, so no cancellation
    return np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2


def participation_ratio(x):
    values = eigenvalues(x)
    return values.sum() ** 2 / (values**2).sum()


def isoscore(x):
    return (participation_ratio(x) - 1) / (x.shape[1] - 1)


def isoscore_unbiased(x):
    """a and b as means over all ways to take four different rows: U-statistics of order four, by their definition.

    ‖C‖² = E[⟨w1 − w2, w3 − w4⟩²]/4 and tr(C)² = E[‖w1 − w2‖² ‖w3 − w4‖²]/4, over independent rows.
    """
    n, inner = len(x), (x - x.mean(0)) @ (x - x.mean(0)).T
    squares = np.diag(inner)[:, None] + np.diag(inner) - 2 * inner
    a = b = 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                keep = [k for k in range(n) if k not in (i, j)]
                rest = np.ix_(keep, keep)
                along = (inner[i] - inner[j])[keep]
                b += ((along[:, None] - along) ** 2).sum()
                a += squares[i, j] * squares[rest].sum()
    return (a / b - 1) / (x.shape[1] - 1)


def effective_rank(x):
    share = np.linalg.svd(x, compute_uv=False)
    share = share[share > 1e-14 * share.max()] / share.sum()
    return np.exp(-(share * np.log(share)).sum())


def off_diagonal_mean(matrix):
    n = len(matrix)
    return matrix[~np.eye(n, dtype=bool)].mean()


def cosine_distances(x, y):
    """1 − cos from the differences of unit rows, which keeps the digits of near rows."""
    u, v = unit(x), unit(y)
    return ((u[:, None] - v[None]) ** 2).sum(-1) / 2


def axis_distances(x):
    u = unit(x)
    axis = u.sum(0) / np.linalg.norm(u.sum(0))
    return ((u - axis) ** 2).sum(1) / 2


def angle(defect):
    return np.degrees(2 * np.arcsin(np.sqrt(defect / 2)))


def silhouette(x, labels, metric):
    labels = np.asarray(labels)
    if metric == "cosine":
        distances = cosine_distances(x, x)
    else:
        distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    if metric == "euclidean":
        distances = np.sqrt(distances)
    np.fill_diagonal(distances, 0)
    return silhouette_score(distances, labels, metric="precomputed")


def modality_silhouette(x, y, metric):
    return silhouette(np.concatenate([x, y]), [0] * len(x) + [1] * len(y), metric)


def relative_modality_gap(x, y):
    m = np.diag(cosine_distances(x, y)).mean() / 2
    i, t = (off_diagonal_mean(cosine_distances(z, z)) / 2 for z in (x, y))
    return m / (m + (i + t) / 2)


def coordinate_spread(x):
    std = x.std(0)
    return std.std() / std.mean()


ORACLES = {
    "isotropy_i1": lambda x: partition(x, "invariant")[0],
    "isotropy_i1[canonical]": lambda x: partition(x, "canonical")[0],
    "isotropy_i1[rows]": lambda x: partition(x, "rows")[0],
    "isotropy_i2": lambda x: partition(x, "invariant")[1],
    "isotropy_i2[canonical]": lambda x: partition(x, "canonical")[1],
    "isotropy_i2[rows]": lambda x: partition(x, "rows")[1],
    "participation_ratio": participation_ratio,
    "isoscore": isoscore,
    "isoscore[unbiased]": isoscore_unbiased,
    "effective_rank": lambda x: effective_rank(x - x.mean(0)),
    "effective_rank[uncentred]": effective_rank,
    "coordinate_spread": coordinate_spread,
    "average_cosine": lambda x: 1 - off_diagonal_mean(cosine_distances(x, x)),
    "min_pairwise_cosine": lambda x: 1 - pdist(x, "cosine").max(),
    "matching_cosine": lambda x, y: 1 - np.diag(cosine_distances(x, y)).mean(),
    "random_cosine": lambda x, y: 1 - off_diagonal_mean(cosine_distances(x, y)),
    "cone_mean_cosine": lambda x: 1 - axis_distances(x).mean(),
    "cone_min_cosine": lambda x: 1 - axis_distances(x).max(),
    "cone_half_angle": lambda x: angle(axis_distances(x).max()),
    "silhouette": lambda x, labels: silhouette(x, labels, "euclidean"),
    "silhouette[sqeuclidean]": lambda x, labels: silhouette(x, labels, "sqeuclidean"),
    "silhouette[cosine]": lambda x, labels: silhouette(x, labels, "cosine"),
    "silhouette[sampled]": lambda x, labels: silhouette(x, labels, "euclidean"),
    "modality_gap": lambda x, y: cdist(x.mean(0)[None], y.mean(0)[None])[0, 0],
    "modality_gap[cosine]": lambda x, y: cosine_distances(x.mean(0)[None], y.mean(0)[None])[0, 0],
    "modality_silhouette": lambda x, y: modality_silhouette(x, y, "euclidean"),
    "modality_silhouette[sqeuclidean]": lambda x, y: modality_silhouette(x, y, "sqeuclidean"),
    "modality_silhouette[cosine]": lambda x, y: modality_silhouette(x, y, "cosine"),
    "relative_modality_gap": relative_modality_gap,
    **MODALITY_ORACLES,
    **AGREEMENT_ORACLES,
    **DIMENSION_ORACLES,
    **DIRECTIONAL_ORACLES,
    **CLASS_ORACLES,
    **NEIGHBOR_ORACLES,
    **COSINE_ORACLES,
}
