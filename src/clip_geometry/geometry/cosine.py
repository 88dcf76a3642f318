"""Cosines of rows: within a set, between two sets, to the axis of their cone, within and between types."""

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

BLOCK = 2048  # rows and columns of cosines at a time


@in_kind
def average_cosine(x: Rows | UnitSums) -> Float[Tensor, ""]:
    """Average cosine similarity of all pairs of different rows, exactly, in O(nd).

    (‖Σu‖² − n)/(n(n − 1)), u the unit rows. Computed as 1 − Σ‖u_i − ū‖²/(n − 1), which is the same and does not cancel.
    In [−1/(n − 1), 1]: 0 without a common direction, 1 where all rows point the same way. Source: Ethayarajh 2019.

    Args:
        x: Rows, (n, d), or `UnitSums`; n ≥ 2.

    Returns:
        The average, a float (for tensors a 0-d float64 tensor).

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
    """Smallest cosine similarity of any two rows.

    In [−1, 1]. A positive value means that all rows lie within 90° of each other. O(n²d), in blocks, never an n × n
    matrix. Source: Tyshchuk et al. 2023.

    Args:
        x: Rows, (n, d), n ≥ 2.

    Returns:
        The minimum, a float (for tensors a 0-d float64 tensor).

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
        rounding = (u.shape[1] + 8) * torch.finfo(torch.float32).eps  # of two float32 products of unit rows
        possible = u[minima <= minima.min() + rounding]
        if 2 * len(possible) <= len(u):
            least = [(a @ b.T).min() for a in possible.split(BLOCK) for b in u.split(BLOCK)]
            return torch.stack(least).min().clamp(-1, 1)
    return _row_minima(u).min().clamp(-1, 1)


def _row_minima(u: Float[Matrix, "n d"]) -> Float[Tensor, " n"]:
    """The smallest product of each row with those of its own block and the later ones."""
    spans = [slice(start, start + BLOCK) for start in range(0, len(u), BLOCK)]
    parts = enumerate(u.split(BLOCK))
    return torch.cat([torch.stack([(a @ u[span].T).amin(1) for span in spans[i:]]).amin(0) for i, a in parts])


@in_kind
def matching_cosine(x: Rows | UnitPairs, y: Rows | None = None) -> Float[Tensor, ""]:
    """Mean cosine similarity of matching pairs (x_i, y_i).

    In [−1, 1]; 1 where both rows of every pair point the same way.

    Args:
        x: Rows, (n, d), n ≥ 1; or `UnitPairs` alone.
        y: Rows, (n, d), aligned with x.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

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
    """Mean cosine similarity of non-matching pairs (x_i, y_j), i ≠ j, exactly, in O(nd).

    (⟨Σu, Σv⟩ − Σ⟨u_i, v_i⟩)/(n(n − 1)), u and v the unit rows. In [−1, 1]. Read it beside `matching_cosine`.

    Args:
        x: Rows, (n, d), n ≥ 2; or `UnitPairs` alone.
        y: Rows, (n, d), aligned with x.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, or the numbers of rows differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.geometry.random_cosine(image + 1, image + text + 1), 3)
        0.392
    """
    pairs = UnitPairs.of(x, y)
    n, matching = pairs.n, pairs.n - pairs.apart / 2
    return ((n * n * (pairs.image.mean @ pairs.text.mean) - matching) / (n * (n - 1))).clamp(-1, 1)


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
        >>> found = cg.geometry.cone(x)
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
    """Linear quantile (torch.quantile refuses more than 16 million values)."""
    position = q * (len(values) - 1)
    low, high = values.sort().values[[math.floor(position), math.ceil(position)]]
    return low + (position - math.floor(position)) * (high - low)


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
        >>> round(cg.geometry.cone_mean_cosine(x), 3)
        0.701
    """
    return _length(UnitSums.of(x).mean)


def _length(mean: Float[Tensor, " d"]) -> Float[Tensor, ""]:
    length = mean.norm()
    if length <= 1e-7:  # the axis would be made of rounding errors
        raise InputError("the directions of the rows cancel (their sum is zero); there is no cone axis")
    return length


@arrays_in_kind
def conformity(x: Rows) -> Float[Tensor, " n"]:
    """Mean cosine similarity of each row to all other rows, exactly, in O(nd).

    ⟨u_i, Σ_{j≠i} u_j⟩/(n − 1), u the unit rows. Computed as 1 − (n‖u_i − ū‖² + Σ_j‖u_j − ū‖²)/(2(n − 1)), which is the
    same and does not cancel where all rows nearly coincide. In [−1, 1]: high for common rows, low for unusual ones.
    Their mean is `average_cosine`. Source: Levi & Gilboa 2025.

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
    """Standard deviation of `conformity` over the rows (population, ddof 0).

    n std_i(‖u_i − ū‖²)/(2(n − 1)): what all conformities share drops out, so no digits are lost to it. In [0, 1]; 0
    where all rows are equally common. Source: Levi & Gilboa 2025.

    Args:
        x: Rows, (n, d), n ≥ 3, because two rows always conform equally.

    Returns:
        The standard deviation, a float (for tensors a 0-d float64 tensor).

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
    """‖u_i − ū‖² of the unit rows u."""
    u = unit_rows(x)
    mean = mean_row(u)
    return in_one_piece(((block - mean).square().sum(1) for block in blocks(u)), len(u))


@in_kind
def inter_type_cosine(x: Rows, types: Labels) -> Float[Tensor, ""]:
    """Mean cosine similarity of instances of two different types, each pair of types counted once whatever its size.

    (‖Σm_t‖² − Σ‖m_t‖²)/(T(T − 1)), m_t the mean of the unit rows u of type t, T types: the exact expectation over one
    random instance per type. Computed as 1 − [Σ‖m_t − m̄‖²/(T − 1) + mean_t s_t], s_t the mean of ‖u − m_t‖² over type
    t, which is the same and does not cancel. In [−1, 1]: 0 without a common direction, 1 where all rows point the same
    way. Source: Cai et al. 2021.

    Args:
        x: Rows, (n, d), n ≥ 2.
        types: Type of each row, (n,), at least two values.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, or there is a single type.

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
    """Mean cosine similarity of two different instances of one type, averaged over types with at least two.

    Mean over types with n_t ≥ 2 of (‖Σ_t u‖² − n_t)/(n_t(n_t − 1)), u the unit rows. Computed as 1 − Σ_t‖u − m_t‖²/(n_t
    − 1), which is the same and does not cancel. Types of a single row are left out (`skipped_types` says how many). In
    [−1, 1]; 1 where the rows of each type point the same way. Source: Cai et al. 2021.

    Args:
        x: Rows, (n, d), n ≥ 3.
        types: Type of each row, (n,), at least two values, one of them on two rows.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, there is a single type, or no type has two rows.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.geometry.intra_type_cosine(x, np.arange(100) % 5), 3)
        0.486
    """
    sums = _unit_sums(x, types, least=3)
    several = sums.counts > 1
    if not several.any():
        raise InputError(f"each of the {len(several)} rows has a type of its own; expected a type with two rows")
    return (1 - (sums.scatters[several] / (sums.counts[several] - 1)).mean()).clamp(-1, 1)


def skipped_types(x: Rows, types: Labels) -> str | None:
    """How many types intra_type_cosine leaves out, in words; None where it takes all."""
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
