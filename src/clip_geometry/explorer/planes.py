"""Rows on a plane: principal components of all sets together, and UMAP of a sample in which other rows are placed."""

import warnings
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch

from clip_geometry.geometry import Moments
from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import BLOCK, blocks, unit_rows
from clip_geometry.rows.streamed import StreamedRows

UMAP_NEIGHBORS = 15
UMAP_ROWS = 5000  # that UMAP is fitted on, at most
UMAP_SEARCHES = 4096  # rows from which on it searches for neighbors, with code that takes a minute to compile
PLACED_BY = 5  # nearest rows of the sample


class PrincipalPlane(NamedTuple):
    """The first two principal components of all rows.

    points: (n, 2), of the sets one after the other. shares: of the variance, of each component.
    """

    points: np.ndarray
    shares: tuple[float, float]


def principal_plane(sets: Sequence[Any], like: np.ndarray | None = None) -> PrincipalPlane:
    """Return the first two principal components of the rows of all sets; in one dimension, the second is 0.

    Args:
        sets: (n, d) rows each, arrays or `StreamedRows`.
        like: (n, 2) points of the same rows. Components have either sign; each is given the one that correlates with
            these points, or by default the one that makes its largest entry positive.
    """
    rows = [x if isinstance(x, StreamedRows) else StreamedRows.of(x) for x in sets]
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


def umap_plane(
    rows: np.ndarray, *, seed: int = 0, most: int = UMAP_ROWS, start: np.ndarray | None = None
) -> np.ndarray:
    """Return the rows in two dimensions by UMAP, by the cosine with 15 neighbors.

    Of more than `most` rows, UMAP is fitted on a random sample. Any other row is placed at the mean of its 5 nearest
    rows of the sample, weighted by their cosine distances, which is where UMAP's own `transform` begins.

    Args:
        rows: (n, d), n ≥ 4, in memory.
        seed: Of the sample and of UMAP.
        most: Rows that it is fitted on, at least 4.
        start: (n, 2) where the points begin, such as the plane of these rows before a map, so that both planes agree in
            their orientation; by default UMAP's spectral layout.

    Raises:
        InputError: There are fewer than 4 rows, or a row is zero.
    """
    if len(rows) < 4:
        raise InputError(f"there are {len(rows)} rows; UMAP needs at least 4, so use projection=pca")
    chosen = np.arange(len(rows))
    if len(rows) > most:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, most, replace=False))
    points = np.empty((len(rows), 2))
    points[chosen] = _fitted(rows[chosen], seed, None if start is None else start[chosen])
    if len(others := np.setdiff1d(np.arange(len(rows)), chosen)):
        sample = unit_rows(torch.from_numpy(rows[chosen]))
        for first in range(0, len(others), BLOCK):
            part = others[first : first + BLOCK]
            distances, near = nearest(unit_rows(torch.from_numpy(rows[part])), PLACED_BY, y=sample)
            weights = 1 / distances.square().clamp(min=1e-12)
            weights /= weights.sum(1, keepdim=True)
            points[part] = np.einsum("nk,nkp->np", weights.numpy(), points[chosen[near.numpy()]])
    return points


def _fitted(rows: np.ndarray, seed: int, start: np.ndarray | None) -> np.ndarray:
    threads, k = torch.get_num_threads(), min(UMAP_NEIGHBORS, len(rows) - 1)
    init: Any = "spectral" if len(rows) > UMAP_NEIGHBORS else "random"
    if start is not None:  # as UMAP scales its spectral layout, so that clusters can still be untangled
        spread = np.abs(start - start.mean(0)).max() or 1.0
        init = (10 * (start - start.mean(0)) / spread).astype(np.float32)
    known: dict[str, Any] = {}
    if len(rows) >= UMAP_SEARCHES:
        distances, indices = nearest(unit_rows(torch.from_numpy(rows)), k)
        own = np.arange(len(rows))[:, None]  # UMAP counts a row among its neighbors
        near = np.hstack([own, indices.numpy()])[:, :k]
        cosines = np.hstack([np.zeros_like(own), distances.square().numpy() / 2])[:, :k].astype(np.float32)
        known = {"precomputed_knn": (near, cosines)}
    try:
        with warnings.catch_warnings(action="ignore"):  # of its dependencies, and that a seed means one thread
            from umap import UMAP

            umap = UMAP(metric="cosine", n_neighbors=k, init=init, random_state=seed, n_jobs=1, **known)
            return np.asarray(umap.fit_transform(rows), np.float64)
    finally:  # numba sets the number of threads of the OpenMP that torch shares with it
        torch.set_num_threads(threads)
