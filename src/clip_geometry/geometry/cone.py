"""The narrowest description of a cone: its axis, and how far the rows lie from it."""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.kinds import Value, Values, in_kind
from clip_geometry.geometry._core.rows import Rows, as_matrix, blocks, in_one_piece, mean_row, unit_rows
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.registry import InputError

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


_MEAN = Measure(
    name="cone_mean_cosine",
    streams=True,
    title="Mean cosine to the cone's axis",
    brief="how closely the rows gather around their mean direction",
    group="cone",
    function=cone,
    attribute="mean_cosine",
    takes="rows",
    summary="The mean cosine of the rows to their mean direction.",
    reading="Near 1, the rows crowd around one direction; near 0, they have no common direction.",
    caveat="Two opposite poles give 0 as well; and n rows of pure noise give about 1/√n, not 0.",
    formula="mean_i ⟨u_i, a⟩ = ‖Σu‖/n, a = Σu/‖Σu‖",
    range=(0, 1),
    direction="lower is more isotropic",
    at_gaussian=0,
    invariances=("rotation", "scale", "row scale"),
    reference="own definition; cones as in Tyshchuk et al. 2023, doi:10.3390/info14070392",
)
_MIN = replace(
    _MEAN,
    name="cone_min_cosine",
    title="Smallest cosine to the cone's axis",
    brief="how far the farthest row is from the mean direction",
    attribute="min_cosine",
    summary="The cosine to the mean direction of the row that lies farthest from it.",
    reading="Above 0, every row lies in one half space around the mean direction.",
    caveat="An extreme: one odd row decides it and it falls as n grows, so compare equal n only.",
    formula="min_i ⟨u_i, a⟩, a = Σu/‖Σu‖",
    range=(-1, 1),
    at_gaussian=-1,
    smooth=False,
)
_ANGLE = replace(
    _MIN,
    name="cone_half_angle",
    title="Half angle of the cone",
    brief="angle between the axis of the cone and its edge",
    attribute="half_angle",
    summary="The angle between the mean direction and the row farthest from it.",
    reading="A true cone stays well below 90°; an isotropic cloud has rows on the far side of its mean direction.",
    caveat="An extreme: one odd row decides it and it grows with n; in high dimensions noise stays near 90°, not 180°.",
    formula="arccos min_i ⟨u_i, a⟩, a = Σu/‖Σu‖",
    range=(0, 180),
    direction="higher is more isotropic",
    at_gaussian=180,
    unit="degrees",
)
for _measure in (_MEAN, _MIN, _ANGLE):
    add_measure(_measure)
