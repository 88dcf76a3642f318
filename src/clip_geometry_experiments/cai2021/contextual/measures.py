"""Measures of Cai et al. 2021: cosines inside clusters, and the local intrinsic dimension of large sets.

The dimension of a large set is estimated from the neighborhoods of some rows among all. The set that is searched for
neighbors determines the dimension: among a tenth of the rows, the k-th nearest lies farther away, and the neighborhood
is a different one. The choice of the rows whose neighborhoods are averaged affects only the standard error.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clip_geometry.geometry.cosine import average_cosine, inter_type_cosine, intra_type_cosine
from clip_geometry.geometry.dimension import Estimator, NeighborMetric, different, inverse_dimensions, slope_on_ratios
from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.geometry.statistics import Neighbors
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import Labels, as_codes, mean_row

ROUNDING = 1e-12  # relative to the mean: the rounding left by subtracting it from a row equal to it


class AdjustedCosines(NamedTuple):
    """Adjusted cosines of the clusters.

    `inter` and `intra` hold one value per cluster, NaN if it has none (because of a single type, or no type with two
    rows). `sizes` holds the number of rows of each cluster. `left_out` counts the rows equal to the mean of their
    cluster, which have no direction once it is subtracted.
    """

    inter: NDArray[np.float64]
    intra: NDArray[np.float64]
    sizes: NDArray[np.integer]
    left_out: int

    def mean(self, which: str, *, weighted: bool = False) -> float:
        """Return the mean of "inter" or "intra" over the clusters that have a value.

        Each cluster counts once, as in the authors' code, or by its number of rows with `weighted`. Raises InputError
        if no cluster has a value.
        """
        values = getattr(self, which)
        known = ~np.isnan(values)
        if not known.any():
            needed = "rows of two types" if which == "inter" else "two rows of one type"
            raise InputError(f"none of the {len(values)} clusters has {needed} once its mean is subtracted")
        return float(np.average(values[known], weights=self.sizes[known] if weighted else None))


def adjusted_type_cosines(x: np.ndarray, types: Labels, clusters: np.ndarray) -> AdjustedCosines:
    """Compute inter_type_cosine and intra_type_cosine, exactly, within each cluster after subtracting its mean.

    In each cluster c with mean μ_c, the rows w − μ_c are compared, and a type consists of its rows in c. With one
    cluster, the values are those of centered rows. Takes time O(nd). Source: Cai et al. 2021, section 4.

    Args:
        x: Rows, (n, d), n ≥ 2.
        types: Type of each row, (n,).
        clusters: Cluster of each row, (n,).

    Returns:
        The cosines of the clusters, ordered by first appearance.

    Raises:
        InputError: If the rows are unusable.
    """
    codes, _ = as_codes(types, len(x), name="types")
    inter, intra, sizes = [], [], []
    left_out = 0
    for cluster in dict.fromkeys(clusters.tolist()):
        members = np.flatnonzero(clusters == cluster)
        rows = torch.from_numpy(x[members])
        mean = mean_row(rows)
        shifted = rows.double() - mean
        has_direction = shifted.abs().amax(1) > ROUNDING * mean.abs().amax()  # a row equal to the mean has none
        shifted = shifted[has_direction]
        own_types = codes[members][has_direction]
        several = len(own_types.unique()) > 1
        inter.append(float(inter_type_cosine(shifted, own_types)) if several else np.nan)
        if len(own_types) < 2 or int(own_types.bincount().max()) < 2:
            intra.append(np.nan)
        else:  # for a single type, this is the average cosine
            intra.append(float(intra_type_cosine(shifted, own_types) if several else average_cosine(shifted)))
        sizes.append(len(members))
        left_out += len(members) - len(shifted)
    return AdjustedCosines(np.array(inter), np.array(intra), np.array(sizes), left_out)


DISCARD = 0.1  # share of the ratios of two_nn to discard, the largest ones


class DimensionEstimate(NamedTuple):
    value: float
    standard_error: float


class Neighborhoods(NamedTuple):
    """Neighborhoods of m query rows: `logs` holds log(r_k/r_j) for j = 1 … k, (m, k), and `among` is the number of
    distinct rows that were searched."""

    logs: Tensor
    among: int

    def dimension(self, estimator: Estimator) -> DimensionEstimate:
        """Return local_intrinsic_dimension of these rows by this estimator, and its standard error.

        The standard error is that of a mean over m independent rows (for "mackay", the inverse of a mean, by the delta
        method). It covers the choice of the query rows, but not the choice of the rows that are searched. Raises
        InputError if the neighbors are all equally far.
        """
        inverses = inverse_dimensions(self.logs, estimator)
        m, mean = len(inverses), inverses.mean()
        if (mean if estimator == "mackay" else inverses.amin()) == 0:
            row = "every row" if estimator == "mackay" else "some row"
            raise InputError(f"the nearest rows of {row} are equally far from it, so the dimension is unbounded")
        if estimator == "mackay":
            return DimensionEstimate(float(1 / mean), float(inverses.std() / mean.square() / m**0.5))
        return DimensionEstimate(float((1 / inverses).mean()), float((1 / inverses).std() / m**0.5))

    def two_nn(self) -> float:
        """Return `two_nn` of these rows among all, from the two nearest of each. Raises InputError as it does."""
        logs = (self.logs[:, 0] - self.logs[:, 1]).sort().values
        used = min(int(len(logs) * (1 - DISCARD)), len(logs) - 1)
        if used < 1 or logs[used - 1] == 0:
            raise InputError("the two nearest rows are equally far from every row that is kept, or no row is kept")
        return float(slope_on_ratios(logs[:used], len(logs)))


def neighborhoods(
    x: np.ndarray | Tensor, *, k: int = 100, metric: NeighborMetric = "euclidean", of: int | None = None, seed: int = 0
) -> Neighborhoods:
    """Find the neighborhoods of `of` random rows (None: of all rows) among all rows of x.

    With all rows, `dimension` equals local_intrinsic_dimension, which documents k and metric and also drops duplicates.
    The search is exact and blockwise, and takes time O(of · n · d).

    Args:
        x: Rows, (n, d), with at least k + 1 distinct rows.
        k: Number of neighbors, at least 2.
        metric: "euclidean" or "cosine"; cosine needs d ≥ 2.
        of: Number of random query rows; None uses all rows.
        seed: Seed of the query rows.

    Raises:
        InputError: If x has fewer distinct rows, or k or d is too small.
    """
    neighbors = Neighbors(torch.as_tensor(x))
    k = neighbors.checked(k, least_d=2 if metric == "cosine" else 1, least_k=2)
    rows = different(neighbors, metric, least=k + 1).rows
    if of is None or of >= len(rows):
        distances, _ = nearest(rows, k)
    else:
        chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:of].sort().values
        distances, _ = nearest(rows[chosen], k + 1, y=rows)
        distances = distances[:, 1:]  # drop the row itself, the only one at distance 0
    return Neighborhoods((distances[:, -1:] / distances).log(), len(rows))
