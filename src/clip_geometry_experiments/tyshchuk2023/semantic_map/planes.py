"""t-SNE of rows, how faithful such a map is, and how well two maps agree."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import as_rows, require_spread
from clip_geometry.transforms.paired import Procrustes
from clip_geometry_experiments.report.figures import Pairs, Rows

SIZE, JITTER = 1e-4, 0.01  # standard deviation of the initial t-SNE points, and of their jitter relative to it

Points = NDArray[np.float64]


def tsne_plane(rows: Rows, *, perplexity: float, seed: int = 0, name: str = "x") -> Points:
    """Map rows to two dimensions by Euclidean t-SNE (van der Maaten & Hinton 2008).

    The initial points are the first two principal components plus a jitter of a hundredth of their size. Seeds differ
    only in this jitter: without it, a seed would change only rounding. Since only distances between the rows enter,
    rotating all rows has the same effect as another jitter.

    Args:
        rows: Rows, (n, d), d ≥ 2, not all equal.
        perplexity: Perplexity, in (0, n).
        seed: Seed of the jitter.
        name: Name of the rows in error messages.

    Returns:
        The points, (n, 2).

    Raises:
        InputError: If d < 2, all rows are equal, or the perplexity is outside (0, n).
    """
    from sklearn.manifold import TSNE

    x = as_rows(rows, name=name, least_d=2)
    if not 0 < perplexity < len(x):
        raise InputError(
            f"the t-SNE of {len(x)} {name} rows has perplexity {perplexity:g}; expected one above 0 and below the "
            "number of rows: lower the perplexity or take more items"
        )
    require_spread(x, name=name)
    values = x.numpy()
    centered = values.astype(np.float64)
    centered -= centered.mean(0)
    squares, vectors = np.linalg.eigh(centered.T @ centered)
    scores = centered @ vectors[:, [-1, -2]] * np.sqrt(len(values) / squares[-1])
    # scale the initial points as scikit-learn does
    jittered = SIZE * (scores + JITTER * np.random.default_rng(seed).normal(size=scores.shape))
    start: Any = jittered.astype(np.float32)
    tsne = TSNE(perplexity=perplexity, init=start, random_state=seed % 2**32, n_jobs=1)
    return np.asarray(tsne.fit_transform(values), np.float64)


def trustworthiness(rows: Rows, points: Points, *, k: int = 10) -> float:
    """Return 1 minus the penalty for neighbors on the plane that are not neighbors among the rows (Venna & Kaski 2001).

    The score is 1 − 2/(nk(2n − 3k − 1)) Σ_i Σ_j max(0, r(i, j) − k) over the k nearest points j of i, where r(i, j) is
    the rank of row j among the Euclidean neighbors of row i. It lies in [0, 1]; higher is better, and a random plane
    has about 1/2.

    Args:
        rows: Rows, (n, d).
        points: Points of the rows on the plane, (n, 2).
        k: Number of neighbors, from 1 to below n/2.

    Raises:
        InputError: If k is not below n/2.
    """
    from sklearn.manifold import trustworthiness as score

    if not 1 <= k < len(rows) / 2:
        raise InputError(
            f"the trustworthiness of {len(rows)} rows has k = {k} neighbors; expected k from 1 to below half the "
            "number of rows: lower k or take more items"
        )
    return float(score(rows, points, n_neighbors=k))


@dataclass(frozen=True)
class Superposition:
    """Two planes in one frame: `moved` (n, 2) rotated onto `kept` (m, 2) through pairs (i, j).

    `disparity` lies in [0, 1] and is 0 if the planes coincide. For pairs (x, y) in this frame, disparity = 1 − (mean
    ⟨x, y⟩)², the residual of the squares after the best scaling.
    """

    moved: Points
    kept: Points
    pairs: Pairs
    disparity: float


def superpose(source: Points, target: Points, pairs: Pairs) -> Superposition:
    """Superpose two planes by Procrustes (Gower 1975).

    Both are centered and scaled to root mean square radius 1, and the source is rotated. Center, radius and rotation
    are computed from the pairs (i, j) and applied to all points. The rotation may be a reflection, since t-SNE does not
    distinguish left from right. The disparity equals that of `scipy.spatial.procrustes` and does not change if source
    and target are exchanged.

    Args:
        source: Points to rotate, (n, 2).
        target: Points to keep, (m, 2).
        pairs: Indices (i, j) of the paired points in source and target.
    """
    i, j = pairs
    x, y = _standard(source, i), _standard(target, j)
    moved = x @ Procrustes().fit(x[i], y[j]).W_
    return Superposition(moved, y, (i, j), max(0.0, 1 - float((moved[i] * y[j]).sum(1).mean()) ** 2))


def _standard(points: Points, rows: NDArray[np.integer]) -> Points:
    centered = points - points[rows].mean(0)
    return centered / np.sqrt(np.square(centered[rows]).sum(1).mean())
