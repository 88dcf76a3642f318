"""Cosines within a set, between two sets, to the axis of the cone, and within and between types."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import single_is_exact
from clip_geometry.geometry.kinds import Value, Values, arrays_in_kind, in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.class_sums import ClassSums, class_sums
from clip_geometry.geometry.statistics.sums import UnitPairs, UnitSums
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import (
    Labels,
    Matrix,
    Rows,
    as_codes,
    as_matrix,
    blocks,
    in_one_piece,
    mean_row,
    unit_rows,
)
from clip_geometry.rows.streamed import StreamedRows

BLOCK = 2048  # rows and columns per block of cosines


@in_kind
def average_cosine(x: Rows | UnitSums) -> Float[Tensor, ""]:
    """Return the average cosine similarity of two different rows, over all pairs of rows.

    The value lies in [−1/(n − 1), 1]: near 0 if the rows have no common direction, 1 if all point the same way. It
    equals (‖Σu‖² − n)/(n(n − 1)) for the unit rows u, and is computed as 1 − Σ‖u_i − ū‖²/(n − 1), where ū is their
    mean, because this form is precise even near 1. It is exact and takes O(nd). Source: Ethayarajh 2019.

    Args:
        x: Rows, (n, d), n ≥ 2; or a precomputed `UnitSums`.

    Returns:
        The average as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: A row is zero.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.geometry.average_cosine(x), 3)
        0.487
    """
    return 1 - UnitSums.of(x).mean_distance


@in_kind
def min_pairwise_cosine(x: Rows) -> Float[Tensor, ""]:
    """Return the smallest cosine similarity of any two rows.

    The value lies in [−1, 1]. If it is positive, all rows lie within 90° of each other. The cost is O(n²d), in blocks,
    without an n × n matrix in memory. Source: Tyshchuk et al. 2023.

    Args:
        x: Rows, (n, d), n ≥ 2.

    Returns:
        The minimum as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: A row is zero.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.geometry.min_pairwise_cosine(x), 3)
        -0.548
    """
    u = unit_rows(as_matrix(x))
    if not isinstance(u, StreamedRows) and single_is_exact(u.device):
        minima = _row_minima(u.detach().float())
        # rounding error of the difference of two float32 products of unit rows
        rounding = (u.shape[1] + 8) * torch.finfo(torch.float32).eps
        candidates = u[minima <= minima.min() + rounding]
        if 2 * len(candidates) <= len(u):
            exact_minima = [(a @ b.T).min() for a in candidates.split(BLOCK) for b in u.split(BLOCK)]
            return torch.stack(exact_minima).min().clamp(-1, 1)
    return _row_minima(u).min().clamp(-1, 1)


def _row_minima(u: Float[Matrix, "n d"]) -> Float[Tensor, " n"]:
    """Return the smallest product of each row with the rows of its own block and of all later blocks."""
    spans = [slice(start, start + BLOCK) for start in range(0, len(u), BLOCK)]
    minima = []
    for i, block in enumerate(u.split(BLOCK)):
        minima.append(torch.stack([(block @ u[span].T).amin(1) for span in spans[i:]]).amin(0))
    return torch.cat(minima)


@in_kind
def matching_cosine(x: Rows | UnitPairs, y: Rows | None = None) -> Float[Tensor, ""]:
    """Return the mean cosine similarity of matching rows, mean_i cos(x_i, y_i).

    The value lies in [−1, 1]; it is 1 if both rows of every pair point the same way.

    Args:
        x: Rows, (n, d), n ≥ 1; or a precomputed `UnitPairs` in place of both arguments.
        y: Rows, (n, d), aligned with x.

    Returns:
        The mean as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: A row is zero, or the numbers of rows differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.geometry.matching_cosine(image, image + text), 3)
        0.706
    """
    pairs = UnitPairs.of(x, y)
    return (1 - pairs.apart / (2 * pairs.n)).clamp(-1, 1)


@in_kind
def random_cosine(x: Rows | UnitPairs, y: Rows | None = None) -> Float[Tensor, ""]:
    """Return the mean cosine similarity of rows that do not match, mean_{i≠j} cos(x_i, y_j).

    The value lies in [−1, 1]. Compare it with `matching_cosine`, which is higher if matching rows are similar. It is
    (⟨Σu, Σv⟩ − Σ⟨u_i, v_i⟩)/(n(n − 1)), where u and v are the unit rows of x and y, and takes O(nd).

    Args:
        x: Rows, (n, d), n ≥ 2; or a precomputed `UnitPairs` in place of both arguments.
        y: Rows, (n, d), aligned with x.

    Returns:
        The mean as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: A row is zero, or the numbers of rows differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.geometry.random_cosine(image + 1, image + text + 1), 3)
        0.392
    """
    pairs = UnitPairs.of(x, y)
    n = pairs.n
    matching = n - pairs.apart / 2
    return ((n * n * (pairs.image.mean @ pairs.text.mean) - matching) / (n * (n - 1))).clamp(-1, 1)


class Cone(NamedTuple):
    """Result of `cone`: the cone around the mean direction that contains all rows. Angles are in degrees.

    Attributes:
        axis: (d,) unit vector in the mean direction of the rows.
        mean_cosine: Mean cosine of a row to the axis, in [0, 1].
        min_cosine: Smallest cosine of a row to the axis, in [−1, 1].
        half_angle: Angle between the axis and the row farthest from it, in [0, 180].
        half_angle_99: Angle to the axis that 99% of the rows do not exceed.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> result = cg.geometry.cone(np.array([[1.0, 0.1], [1.0, -0.1]]))
        >>> result.axis.tolist(), round(result.half_angle, 2)
        ([1.0, 0.0], 5.71)
    """

    axis: Values
    mean_cosine: Value
    min_cosine: Value
    half_angle: Value
    half_angle_99: Value


@in_kind
def cone(x: Rows) -> Cone:
    """Return the cone around the mean direction that contains all rows.

    The axis is Σu/‖Σu‖, where u are the unit rows. mean_cosine and min_cosine are the mean and the smallest cosine of a
    row to the axis. half_angle is the angle of the smallest cosine, and half_angle_99 that of the 1% quantile of the
    cosines (linearly interpolated), both in degrees. A small half-angle means a narrow cone. Above 90°, the rows do not
    lie in a cone.

    Args:
        x: Rows, (n, d), n ≥ 2.

    Returns:
        A `Cone` with the fields axis (d,), mean_cosine, min_cosine, half_angle and half_angle_99, in float64.

    Raises:
        InputError: A row is zero, or the directions cancel (‖Σu‖ ≤ 1e-7 n), so that the axis is undefined.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> result = cg.geometry.cone(x)
        >>> round(result.mean_cosine, 3), round(result.half_angle, 1)
        (0.701, 80.0)
    """
    u = unit_rows(as_matrix(x))
    mean = mean_row(u)
    axis = mean / _length(mean)
    # 1 − cos = ‖u − axis‖²/2 keeps full precision in a narrow cone, where arccos(cos) would lose half of the digits
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
    """Return the angle, in degrees, whose cosine is 1 − defect."""
    return torch.rad2deg(2 * (defect / 2).clamp(0, 1).sqrt().asin())


def _quantile(values: Float[Tensor, " n"], q: float) -> Float[Tensor, ""]:
    """Return the linear quantile, also for more than 16 million values, which torch.quantile rejects."""
    position = q * (len(values) - 1)
    low, high = values.sort().values[[math.floor(position), math.ceil(position)]]
    return low + (position - math.floor(position)) * (high - low)


@in_kind
def cone_mean_cosine(x: Rows | UnitSums) -> Float[Tensor, ""]:
    """Return the mean cosine of the rows to the axis of their `cone`, the mean direction.

    It equals ‖Σu‖/n, the length of the mean of the unit rows u, and lies in [0, 1]: near 0 if the rows have no common
    direction, 1 if all point the same way.

    Args:
        x: Rows, (n, d), n ≥ 2; or a precomputed `UnitSums`.

    Returns:
        The mean as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: A row is zero, or the directions cancel, as for `cone`.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.geometry.cone_mean_cosine(x), 3)
        0.701
    """
    return _length(UnitSums.of(x).mean)


def _length(mean: Float[Tensor, " d"]) -> Float[Tensor, ""]:
    """Return the length of the mean of unit rows; raise InputError if it is 0 up to rounding."""
    length = mean.norm()
    if length <= 1e-7:  # the axis would be rounding error
        raise InputError(
            "the directions of the rows cancel (their sum is zero), so there is no cone axis; measure before centering"
        )
    return length


@arrays_in_kind
def conformity(x: Rows) -> Float[Tensor, " n"]:
    """Return for each row its mean cosine similarity to all other rows.

    Each value lies in [−1, 1]; it is high for typical rows and low for unusual ones. The mean over all rows is
    `average_cosine`. For the unit rows u, the conformity of row i is ⟨u_i, Σ_{j≠i} u_j⟩/(n − 1). It is computed as 1 −
    (n‖u_i − ū‖² + Σ_j‖u_j − ū‖²)/(2(n − 1)), where ū is their mean, because this form is precise even if all rows
    nearly coincide. The cost is O(nd). Source: Levi & Gilboa 2025.

    Args:
        x: Rows, (n, d), n ≥ 2.

    Returns:
        The conformity of each row, (n,), float64.

    Raises:
        InputError: A row is zero.

    Example:
        >>> import clip_geometry as cg
        >>> cg.geometry.conformity([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).tolist()
        [0.5, 0.5, 0.0]
    """
    squares = _squares_from_mean(as_matrix(x))
    n = len(squares)
    return 1 - (n * squares + squares.sum()) / (2 * (n - 1))


@in_kind
def conformity_std(x: Rows) -> Float[Tensor, ""]:
    """Return the standard deviation of `conformity` over the rows: how much typical and unusual rows differ.

    The value lies in [0, 1]; 0 means that all rows are equally typical. It is the population standard deviation (ddof
    0), computed as n std_i(‖u_i − ū‖²)/(2(n − 1)) for the unit rows u with mean ū. The constant term of the conformity
    is left out, which keeps precision. Source: Levi & Gilboa 2025.

    Args:
        x: Rows, (n, d), n ≥ 3, because two rows always have the same conformity.

    Returns:
        The standard deviation as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: A row is zero.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.geometry.conformity_std(x), 3)
        0.119
    """
    squares = _squares_from_mean(as_matrix(x, least=3))
    n = len(squares)
    return squares.std(correction=0) * (n / (2 * (n - 1)))


def _squares_from_mean(x: Float[Matrix, "n d"]) -> Float[Tensor, " n"]:
    """Return ‖u_i − ū‖² for the unit rows u."""
    u = unit_rows(x)
    mean = mean_row(u)
    return in_one_piece(((block - mean).square().sum(1) for block in blocks(u)), len(u))


@in_kind
def inter_type_cosine(x: Rows, types: Labels) -> Float[Tensor, ""]:
    """Return the mean cosine similarity of two rows of different types, such as two different words.

    Every pair of types has the same weight, whatever the number of their rows. The value lies in [−1, 1]: 0 without a
    common direction, 1 if all rows point the same way. Source: Cai et al. 2021.

    Let m_t be the mean of the unit rows of type t, and T the number of types. The value is (‖Σm_t‖² − Σ‖m_t‖²)/(T(T −
    1)), which is exact, without sampling. It is computed as 1 − [Σ‖m_t − m̄‖²/(T − 1) + mean_t s_t], where m̄ is the
    mean of the m_t and s_t the mean of ‖u − m_t‖² over the unit rows u of type t, because this form is precise even
    near 1.

    Args:
        x: Rows, (n, d), n ≥ 2.
        types: Type of each row, (n,), with at least two different values.

    Returns:
        The mean as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: A row is zero, or all rows have the same type.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.geometry.inter_type_cosine(x, np.arange(100) % 5), 3)
        0.487
    """
    sums = _unit_sums(x, types, least=2)
    between = (sums.offsets - sums.offsets.mean(0)).square().sum() / (len(sums.counts) - 1)
    return (1 - (between + (sums.scatters / sums.counts).mean())).clamp(-1, 1)


@in_kind
def intra_type_cosine(x: Rows, types: Labels) -> Float[Tensor, ""]:
    """Return the mean cosine similarity of two rows of the same type, such as two occurrences of a word.

    The mean over the pairs of each type is averaged over the types. Types with a single row are left out;
    `skipped_types` counts them. The value lies in [−1, 1]; it is 1 if the rows of each type point the same way. Source:
    Cai et al. 2021.

    For a type with n_t ≥ 2 rows and unit rows u, the mean is (‖Σu‖² − n_t)/(n_t(n_t − 1)). It is computed as 1 − Σ‖u −
    m_t‖²/(n_t − 1), where m_t is the mean of its unit rows, because this form is precise even near 1.

    Args:
        x: Rows, (n, d), n ≥ 3.
        types: Type of each row, (n,), with at least two different values, one of which occurs at least twice.

    Returns:
        The mean as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: A row is zero, all rows have the same type, or no type has two rows.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.geometry.intra_type_cosine(x, np.arange(100) % 5), 3)
        0.486
    """
    sums = _unit_sums(x, types, least=3)
    several = sums.counts > 1
    if not several.any():
        raise InputError(
            f"each of the {len(several)} rows has a type of its own; expected a type with at least two rows"
        )
    return (1 - (sums.scatters[several] / (sums.counts[several] - 1)).mean()).clamp(-1, 1)


def skipped_types(x: Rows, types: Labels) -> str | None:
    """Return a remark on how many types intra_type_cosine leaves out, or None if it uses all types."""
    codes, count = as_codes(types, len(x))
    single = int((codes.bincount() == 1).sum())
    return f"{single} of {count} types have a single row and are left out" if single else None


def _unit_sums(x: Rows, types: Labels, *, least: int) -> ClassSums:
    x = as_matrix(x, least=least)
    codes, count = as_codes(types, len(x))
    return class_sums(unit_rows(x), codes, count)


add_measure(Measure(name="average_cosine", function=average_cosine, statistic=UnitSums, streams=True, aggregated=True))
add_measure(Measure(name="min_pairwise_cosine", function=min_pairwise_cosine, streams=True))
add_measure(Measure(name="matching_cosine", function=matching_cosine, statistic=UnitPairs, streams=True))
add_measure(Measure(name="random_cosine", function=random_cosine, statistic=UnitPairs, streams=True))
add_measure(Measure("cone_mean_cosine", cone_mean_cosine, statistic=UnitSums, streams=True))
for _name in ("min_cosine", "half_angle"):
    add_measure(Measure(f"cone_{_name}", cone, attribute=_name, streams=True))
add_measure(Measure(name="conformity_std", streams=True, function=conformity_std))
add_measure(Measure(name="inter_type_cosine", streams=True, aggregated=True, function=inter_type_cosine))
add_measure(
    Measure(name="intra_type_cosine", streams=True, aggregated=True, function=intra_type_cosine, remark=skipped_types)
)
