"""GRIDE: intrinsic dimension at a scale, from the ratio of the distances to the k-th and the 2k-th neighbor."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer, members, whole_number
from clip_geometry.geometry._core.kinds import Value, in_kind
from clip_geometry.geometry._core.neighbors import nearest
from clip_geometry.geometry._core.rows import Rows, as_matrix
from clip_geometry.geometry.dimension.nearest import different_rows, duplicates
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.registry import InputError, shown

SCALES = (1, 2, 4, 8, 16, 32)


@in_kind
def gride(x: Rows, *, k: Integer = 8) -> Float[Tensor, ""]:
    """Intrinsic dimension from the distances to the k-th and the 2k-th nearest row (GRIDE, Denti et al. 2022).

    The maximum-likelihood dimension of the ratios μ_i = r_2k/r_k, whose density is
    d (μ^d − 1)^{k − 1}/(B(k, k) μ^{(2k − 1)d + 1}). Small k look at a small scale, where noise lives, large k at a
    larger one: see `gride_scales`. In (0, ∞); biased low near the boundary of the data and in high dimensions. Of
    duplicated rows one is kept; the measure's `remark` counts the others. O(n²d). Without gradient.

    Args:
        x: Rows, (n, d), at least 2k + 1 of them different.
        k: Number of neighbors.

    Returns:
        The dimension, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: There are fewer rows, k < 1, or r_k = r_2k in all rows (a lattice), a dimension without bound.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(300, 2)) @ np.eye(2, 8)
        >>> round(cg.gride(x), 2)
        2.05
    """
    k = whole_number(k, "k", of=", of neighbors")
    distances = _distances(x, k)
    return _dimension((distances[:, -1] / distances[:, k - 1]).log(), k)


@in_kind
def gride_scales(x: Rows, *, scales: Any = SCALES) -> dict[int, Value]:
    """`gride` over several scales, from one search of neighbors.

    A dimension that stays the same over the scales is one of the data; one that falls with k is that of noise, or of
    more rows than there are.

    Args:
        x: Rows, (n, d).
        scales: Numbers k of neighbors; those with 2k + 1 > n are left out.

    Returns:
        k → dimension, floats (for tensors 0-d float64 tensors).

    Raises:
        InputError: No scale is left, or `gride` raises.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(300, 2)) @ np.eye(2, 8)
        >>> {k: round(d, 1) for k, d in cg.gride_scales(x, scales=(2, 8, 32)).items()}
        {2: 2.1, 8: 2.0, 32: 2.0}
    """
    given: list[Any] = members(scales) or []
    chosen = [whole_number(k, "scales", of=", of neighbors") for k in given]
    rows = as_matrix(x)
    chosen = [k for k in chosen if 2 * k < len(rows)]
    if not chosen:
        raise InputError(f"scales = {shown(scales)} of {len(rows)} rows; expected numbers k with 2k + 1 ≤ {len(rows)}")
    distances = _distances(x, max(chosen))
    return {k: _dimension((distances[:, 2 * k - 1] / distances[:, k - 1]).log(), k) for k in chosen}


def _distances(x: Rows, k: int) -> Float[Tensor, "n k2"]:
    """To the 2k nearest different rows."""
    x = as_matrix(x, least=2 * k + 1)
    return nearest(different_rows(x, "euclidean", least=2 * k + 1), 2 * k)[0]


def _dimension(logs: Float[Tensor, " n"], k: int) -> Float[Tensor, ""]:
    """The root of the likelihood's slope, times d: n + (k − 1) Σ z/(1 − e^{−z}) − (2k − 1) Σ z with z = d log μ.

    It is convex and falls, so that Newton's steps from the left never pass the root; and it is positive where
    z/(1 − e^{−z}) is replaced by 1, which is less.
    """
    if logs.amax() == 0:
        raise InputError(f"the {k}-th and the {2 * k}-th nearest row are equally far from every row, a lattice")
    n, total = len(logs), logs.sum()
    d = n * k / ((2 * k - 1) * total)
    for _ in range(100):
        z = d * logs
        fall = -torch.expm1(-z)
        inside = z > 0
        ratio = torch.where(inside, z / fall, 1)
        slope = torch.where(inside, 1 / fall - z * torch.exp(-z) / fall.square(), 0.5)
        value = n + (k - 1) * ratio.sum() - (2 * k - 1) * d * total
        step = value / ((2 * k - 1) * total - (k - 1) * (slope * logs).sum())
        d = d + step
        if step.abs() <= 1e-14 * d:
            break
    return d


_GRIDE = Measure(name="gride", streams=True, function=gride, remark=duplicates("euclidean"))


def _at(k: int) -> Measure:
    return variant(_GRIDE, str(k), options={"k": k})


add_measure(_GRIDE, _at(2), _at(32))
