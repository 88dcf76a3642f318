"""Intrinsic dimension, the number of directions around a row, estimated from distances to near neighbors."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import SAME_DIRECTION, distinct_rows
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.neighbors import Neighbors
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Integer, Literal, Number, one_of, real_number
from clip_geometry.rows.matrix import Rows

NeighborMetric: TypeAlias = Literal["euclidean", "cosine"]
Estimator: TypeAlias = Literal["mackay", "levina-bickel", "cai2021"]
METRICS = ("euclidean", "cosine")
ESTIMATORS = ("mackay", "levina-bickel", "cai2021")


@in_kind
def two_nn(x: Rows | Neighbors, *, discard: Number = 0.1) -> Float[Tensor, ""]:
    """Estimate the intrinsic dimension of the rows from the distances to their two nearest neighbors.

    For each row, μ = r2/r1 is the ratio of the distances to its second and its first neighbor. Under the model of Facco
    et al. 2017, −log(1 − F) is the dimension times log μ, where F is the share of rows with at most this ratio. The
    dimension is the slope of this line through the origin, fitted without the largest ratios, a share `discard` of them
    (at least the largest, where F = 1). It lies in (0, ∞) and is too low near the boundary of the data, more so in high
    dimensions. Of duplicated rows (r1 = 0) only one is kept; the `remark` of the measure counts the others.

    Args:
        x: Rows, (n, d), at least three of them different; or a precomputed `Neighbors`.
        discard: Share of the ratios to leave out, the largest ones, in [0, 1).

    Returns:
        The dimension as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: There are fewer than three different rows, `discard` is out of range or leaves no ratio, or r1 = r2
            in all kept rows (a lattice), where the slope is infinite.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(300, 2)) @ np.eye(2, 8)
        >>> round(cg.geometry.two_nn(x), 2)
        2.25
    """
    discard = discarded_share(discard)
    neighbors = Neighbors.of(x)
    neighbors.checked(2)
    neighbors = different(neighbors, "euclidean", least=3)
    distances, _ = neighbors.nearest(2)
    n = neighbors.n
    kept = min(int(n * (1 - discard)), n - 1)
    if kept < 1:
        raise InputError(f"discard = {discard} leaves none of {n} rows; expected a smaller share or more rows")
    logs = (distances[:, 1] / distances[:, 0]).log().sort().values[:kept]
    if logs[-1] == 0:
        raise InputError(
            "the two nearest rows are equally far from every row, so two_nn is infinite; expected rows that are not a "
            "lattice"
        )
    return slope_on_ratios(logs, n)


def discarded_share(discard: Number) -> float:
    """Return `discard` as a float after checking that it lies in [0, 1)."""
    return real_number(discard, "discard", lambda share: 0 <= share < 1, "a share of the rows, at least 0 and below 1")


def slope_on_ratios(logs: Float[Tensor, " kept"], n: int) -> Float[Tensor, ""]:
    """Return the slope through the origin of −log(1 − i/n) on the smallest of n log ratios, sorted, not all zero."""
    heights = -torch.log1p(-torch.arange(1, len(logs) + 1, device=logs.device, dtype=torch.float64) / n)
    return (logs * heights).sum() / logs.square().sum()


@in_kind
def local_intrinsic_dimension(
    x: Rows | Neighbors, *, k: Integer = 100, metric: NeighborMetric = "euclidean", estimator: Estimator = "mackay"
) -> Float[Tensor, ""]:
    """Estimate the intrinsic dimension of the rows from their distances to their k nearest neighbors.

    The maximum-likelihood estimate for one row is 1/mean_{j<k} log(r_k/r_j), where r_j is the distance to its j-th
    nearest row (Levina & Bickel 2004). These estimates are averaged over the rows. The dimension lies in (0, ∞) and is
    too low near the boundary of the data. Of duplicated rows only one is kept (for "cosine", of rows with equal
    directions up to 1e-13); the `remark` of the measure counts the others.

    Args:
        x: Rows, (n, d), at least k + 1 of them different, d ≥ 2 for "cosine"; or a precomputed `Neighbors`.
        k: Number of neighbors, ≥ 2.
        metric: "euclidean", or "cosine" with the distance r = √(2 − 2 cos) of the unit rows.
        estimator: How estimates are averaged over the rows. "mackay": harmonic mean, the maximum-likelihood estimate of
            all rows together (MacKay & Ghahramani 2005). "levina-bickel": arithmetic mean, which is larger by a factor
            of about (k − 1)/(k − 2). "cai2021": for comparison with the tables of Cai et al. 2021 only; it is
            "levina-bickel" times k/(2(k − 1)), because it uses squared distances (or 1 − cos) and a mean over j ≤ k,
            which includes log(r_k/r_k) = 0.

    Returns:
        The dimension as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: There are too few rows, a row is zero with "cosine", or the dimension is infinite because all k
            neighbors of every row ("mackay") or of some row (the arithmetic means) are equally far from it.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(300, 2)) @ np.eye(2, 8)
        >>> round(cg.geometry.local_intrinsic_dimension(x, k=20), 2)
        2.07
    """
    metric = one_of(metric, "metric", METRICS)
    estimator = one_of(estimator, "estimator", ESTIMATORS)
    neighbors = Neighbors.of(x)
    k = neighbors.checked(k, least_d=2 if metric == "cosine" else 1, least_k=2)
    distances, _ = different(neighbors, metric, least=k + 1).nearest(k)
    inverses = inverse_dimensions((distances[:, -1:] / distances).log(), estimator)
    if estimator == "mackay":
        return 1 / _require_positive(inverses.mean(), k, "every row")
    return (1 / _require_positive(inverses, k, "some row")).mean()


def inverse_dimensions(logs: Float[Tensor, "m k"], estimator: Estimator) -> Float[Tensor, " m"]:
    """Return the inverse of the dimension around each row.

    `logs` holds log(r_k/r_j) for j = 1 … k; the last of them is 0.
    """
    return 2 * logs.mean(1) if estimator == "cai2021" else logs[:, :-1].mean(1)


def _require_positive(inverses: Tensor, k: int, row: str) -> Tensor:
    """Return the inverse dimensions; raise InputError, which names `row`, if one of them is 0."""
    if (inverses == 0).any():
        advice = "choose a larger k or the estimator 'mackay'" if row == "some row" else "choose a larger k"
        raise InputError(
            f"the k = {k} nearest rows of {row} are equally far from it, so the dimension is infinite; {advice}"
        )
    return inverses


def different(neighbors: Neighbors, metric: NeighborMetric, *, least: int) -> Neighbors:
    """Return the `Neighbors` of the distinct rows (of the distinct unit rows for "cosine").

    Raises InputError if fewer than `least` rows are left.
    """
    cosine = metric == "cosine"
    all_rows = neighbors.unit if cosine else neighbors
    is_kept = distinct_rows(all_rows.rows, tolerance=SAME_DIRECTION if cosine else 0.0)
    count = int(is_kept.sum())
    if count < least:
        kind = "different directions" if cosine else "different rows"
        raise InputError(f"x has {count} {kind} among {neighbors.n} rows; expected at least {least}")
    if count == neighbors.n:
        return all_rows
    return Neighbors(all_rows.rows.take(is_kept.nonzero()[:, 0]) if all_rows.streamed else all_rows.rows[is_kept])


def duplicates(metric: NeighborMetric) -> Callable[..., str | None]:
    """Return the `remark` function of a measure that drops duplicated rows."""

    def remark(x: Rows, **_) -> str | None:
        neighbors = Neighbors(x)
        dropped = neighbors.n - different(neighbors, metric, least=0).n
        if not dropped:
            return None
        suffix = " in direction" if metric == "cosine" else ""
        return f"{dropped} duplicated {'row' if dropped == 1 else 'rows'}{suffix} dropped"

    return remark


_LID = Measure(
    name="lid", function=local_intrinsic_dimension, statistic=Neighbors, streams=True, remark=duplicates("euclidean")
)
_DROPPED = duplicates("cosine")
add_measure(Measure("two_nn", two_nn, statistic=Neighbors, streams=True, remark=duplicates("euclidean")))
add_measure(
    _LID,
    variant(_LID, "cosine", options={"metric": "cosine"}, remark=_DROPPED),
    variant(_LID, "cai2021", options={"estimator": "cai2021"}),
    variant(_LID, "cai2021-cosine", options={"metric": "cosine", "estimator": "cai2021"}, remark=_DROPPED),
)
