"""The narrowest description of a cone: its axis, and how far the rows lie from it."""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import Value, Values, in_kind
from clip_geometry.geometry.measure import Measure, add_measure
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
    if mean.norm() <= 1e-7:  # the axis would be made of rounding errors
        raise InputError("the directions of the rows cancel (their sum is zero); there is no cone axis")
    axis = mean / mean.norm()
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


_MEAN = Measure(name="cone_mean_cosine", streams=True, function=cone, attribute="mean_cosine")
_MIN = replace(_MEAN, name="cone_min_cosine", attribute="min_cosine")
_ANGLE = replace(_MIN, name="cone_half_angle", attribute="half_angle")
for _measure in (_MEAN, _MIN, _ANGLE):
    add_measure(_measure)
