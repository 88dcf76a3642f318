"""Rows on a plane: principal components of all sets together, and UMAP."""

import warnings
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch

from clip_geometry.geometry import Moments
from clip_geometry.rows.matrix import blocks
from clip_geometry.rows.streamed import StreamedRows

UMAP_NEIGHBORS = 15
UMAP_ROWS = 4000  # at most; of more, UMAP searches with code that takes a minute to compile


class PrincipalPlane(NamedTuple):
    """The first two principal components of all rows.

    points: (n, 2), of the sets one after the other. shares: of the variance, of each component.
    """

    points: np.ndarray
    shares: tuple[float, float]


def principal_plane(sets: Sequence[np.ndarray], like: np.ndarray | None = None) -> PrincipalPlane:
    """Return the first two principal components of the rows of all sets; in one dimension, the second is 0.

    Args:
        sets: (n, d) rows each.
        like: (n, 2) points of the same rows. Components have either sign; each is given the one that correlates with
            these points, or by default the one that makes its largest entry positive.
    """
    rows = [StreamedRows.of(x) for x in sets]
    moments = reduce(Moments.__add__, map(Moments.of, rows))
    squares, axes = (each.flip(-1) for each in torch.linalg.eigh(moments.M2))
    axes = axes[:, :2]
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    points = torch.cat([(block - moments.mean) @ axes for x in rows for block in blocks(x)]).numpy()
    shares = (squares[:2].clamp(min=0) / squares.clamp(min=0).sum().clamp(min=1e-300)).tolist()
    if points.shape[1] < 2:
        points, shares = np.column_stack([points, np.zeros(len(points))]), [*shares, 0.0]
    if like is not None:
        points = points * np.where((points * (like - like.mean(0))).sum(0) < 0, -1.0, 1.0)
    return PrincipalPlane(points, (shares[0], shares[1]))


def umap_plane(rows: np.ndarray, *, seed: int = 0, start: np.ndarray | None = None) -> np.ndarray:
    """Return (n, d) rows in two dimensions by UMAP, by the cosine with 15 neighbors; n ≥ 4.

    start: (n, 2) where the points begin, such as the plane of these rows before a map, so that both planes agree in
    their orientation; by default UMAP's spectral layout.
    """
    init: Any = "spectral" if len(rows) > UMAP_NEIGHBORS else "random"
    if start is not None:  # as UMAP scales its spectral layout, so that clusters can still be untangled
        centered = start - start.mean(0)
        init = (10 * centered / (np.abs(centered).max() or 1.0)).astype(np.float32)
    k, threads = min(UMAP_NEIGHBORS, len(rows) - 1), torch.get_num_threads()
    try:
        with warnings.catch_warnings(action="ignore"):  # of its dependencies, and that a seed means one thread
            from umap import UMAP

            umap = UMAP(metric="cosine", n_neighbors=k, init=init, random_state=seed, n_jobs=1)
            return np.asarray(umap.fit_transform(rows), np.float64)
    finally:  # numba sets the number of threads of the OpenMP that torch shares with it
        torch.set_num_threads(threads)
