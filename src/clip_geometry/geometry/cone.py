"""The narrowest description of a cone: its axis, and how far the rows lie from it."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import Value, Values, in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.sums import UnitSums
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import Rows, as_matrix, blocks, in_one_piece, mean_row, unit_rows

SORTED = 2**18  # numbers at a time


class Cone(NamedTuple):
    axis: Values
    mean_cosine: Value
    min_cosine: Value
    half_angle: Value
    half_angle_99: Value


@in_kind
def cone(x: Rows) -> Cone:
    """The cone around the mean direction that holds all rows.

    axis = Σu/‖Σu‖, u the unit rows; mean_cosine and min_cosine are cosines to it; half_angle = arccos(min_cosine);
    half_angle_99 = arccos of the 1 % quantile of the cosines (linear between order statistics). Angles are in degrees.
    A small angle is a narrow cone; beyond 90° there is none.

    Args:
        x: Rows, (n, d), n ≥ 2.

    Returns:
        A `Cone`: axis (d,), mean_cosine, min_cosine, half_angle, half_angle_99; float64.

    Raises:
        InputError: A row is zero, or the directions cancel (‖Σu‖ ≤ 1e-7 n), so that there is no axis.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> found = cg.cone(x)
        >>> round(found.mean_cosine, 3), round(found.half_angle, 1)
        (0.701, 80.0)
    """
    u = unit_rows(as_matrix(x))
    mean = mean_row(u)
    axis = mean / _length(mean)
    # 1 − cos = ‖u − axis‖²/2 keeps its digits in a narrow cone, where arccos(cos) would lose half of them
    defect = in_one_piece(((block - axis).square().sum(1) / 2 for block in blocks(u)), len(u))
    widest = defect.max()
    return Cone(
        axis=axis,
        mean_cosine=1 - defect.mean(),
        min_cosine=(1 - widest).clamp(-1, 1),
        half_angle=_angle(widest),
        half_angle_99=_angle(_quantile(defect, 0.99)),
    )


def _angle(defect: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Degrees of the angle whose cosine is 1 − defect."""
    return torch.rad2deg(2 * (defect / 2).clamp(0, 1).sqrt().asin())


def _quantile(values: Float[Tensor, " n"], q: float) -> Float[Tensor, ""]:
    """Linear quantile (torch.quantile refuses more than 16 million values), of the largest values alone."""
    position = q * (len(values) - 1)
    low = int(position)
    largest = values[:0]
    for part in values.split(SORTED):
        both = torch.cat([largest, part])
        largest = both.topk(min(len(values) - low, len(both))).values  # descending
    return largest[-1] + (position - low) * (largest[max(len(largest) - 2, 0)] - largest[-1])


@in_kind
def cone_mean_cosine(x: Rows | UnitSums) -> Float[Tensor, ""]:
    """The mean cosine to the axis of the `cone`, ‖Σu‖/n, which is the length of the mean direction.

    Args:
        x: Rows, (n, d), or `UnitSums`; n ≥ 2.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, or the directions cancel, as for `cone`.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.cone_mean_cosine(x), 3)
        0.701
    """
    return _length(UnitSums.of(x).mean)


def _length(mean: Float[Tensor, " d"]) -> Float[Tensor, ""]:
    length = mean.norm()
    if length <= 1e-7:  # the axis would be made of rounding errors
        raise InputError("the directions of the rows cancel (their sum is zero); there is no cone axis")
    return length


add_measure(Measure("cone_mean_cosine", cone_mean_cosine, statistic=UnitSums, streams=True))
for _name in ("min_cosine", "half_angle"):
    add_measure(Measure(f"cone_{_name}", cone, attribute=_name, streams=True))
