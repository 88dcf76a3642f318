"""Cosines within one set and between two. Everything but the minimum is linear in n."""

import operator
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer, block_number
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.left_out import LeftOut
from clip_geometry.geometry._core.rows import (
    BLOCK,
    Matrix,
    Rows,
    as_aligned_matrices,
    as_matrix,
    mean_row,
    total,
    unit_blocks,
    unit_rows,
)
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.geometry.measure import Measure, add_measure


def mean_cosine_distance(x: Float[Matrix, "n d"], *, name: str = "x") -> Float[Tensor, ""]:
    """Mean of 1 − cos over the pairs of different rows.

    1 − cos = ‖u − v‖²/2 of the unit rows, whose mean over pairs is Σ‖u_i − ū‖²/(n − 1), the trace of the covariance:
    linear in n, in blocks, and exact to the last digits where all rows nearly coincide.
    """
    if isinstance(x, StreamedRows):
        unit = unit_rows(x, name=name)
        mean = mean_row(unit)

        def accumulate(found: Tensor, block: Tensor, along: Tensor | None) -> Tensor:
            return found.add_((block - mean).square_().sum())

        return unit.aggregate(lambda: mean.new_zeros(()), accumulate, operator.add, BLOCK) / (len(unit) - 1)
    mean = torch.stack([u.sum(0) for u in unit_blocks(x, name=name)]).sum(0) / len(x)
    return torch.stack([(u - mean).square().sum() for u in unit_blocks(x, name=name)]).sum() / (len(x) - 1)


@in_kind
def average_cosine(x: Rows) -> Float[Tensor, ""]:
    """Average cosine similarity of all pairs of different rows, exactly, in O(nd).

    (‖Σu‖² − n)/(n(n − 1)), u the unit rows. Computed as 1 − Σ‖u_i − ū‖²/(n − 1), which is the same and does not cancel.
    In [−1/(n − 1), 1]: 0 without a common direction, 1 where all rows point the same way. Source: Ethayarajh 2019.

    Args:
        x: Rows, (n, d), n ≥ 2.

    Returns:
        The average, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.average_cosine(x), 3)
        0.487
    """
    return 1 - mean_cosine_distance(as_matrix(x))


@in_kind
def min_pairwise_cosine(x: Rows, *, block_size: Integer = 2048) -> Float[Tensor, ""]:
    """Smallest cosine similarity of any two rows.

    In [−1, 1]. A positive value means that all rows lie within 90° of each other. O(n²d), in blocks, never an n × n
    matrix. Source: Tyshchuk et al. 2023.

    Args:
        x: Rows, (n, d), n ≥ 2.
        block_size: Rows per block.

    Returns:
        The minimum, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.min_pairwise_cosine(x), 3)
        -0.548
    """
    block_size = block_number(block_size)
    u = unit_rows(as_matrix(x))
    spans = [slice(start, start + block_size) for start in range(0, len(u), block_size)]
    parts = enumerate(u.split(block_size))
    least = [torch.stack([(a @ u[span].T).min() for span in spans[i:]]).min() for i, a in parts]
    return torch.stack(least).min().clamp(-1, 1)


@in_kind
def matching_cosine(x: Rows, y: Rows) -> Float[Tensor, ""]:
    """Mean cosine similarity of matching pairs (x_i, y_i).

    In [−1, 1]; 1 where both rows of every pair point the same way.

    Args:
        x: Rows, (n, d), n ≥ 1.
        y: Rows, (n, d), aligned with x.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, or the numbers of rows differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.matching_cosine(image, image + text), 3)
        0.706
    """
    x, y = as_aligned_matrices(x, y, ("image", "text"), least=1)
    return (1 - unit_differences(x, y) / (2 * len(x))).clamp(-1, 1)


@in_kind
def random_cosine(x: Rows, y: Rows) -> Float[Tensor, ""]:
    """Mean cosine similarity of non-matching pairs (x_i, y_j), i ≠ j, exactly, in O(nd).

    (⟨Σu, Σv⟩ − Σ⟨u_i, v_i⟩)/(n(n − 1)), u and v the unit rows. In [−1, 1]. Read it beside `matching_cosine`.

    Args:
        x: Rows, (n, d), n ≥ 2.
        y: Rows, (n, d), aligned with x.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, or the numbers of rows differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.random_cosine(image + 1, image + text + 1), 3)
        0.392
    """
    x, y = as_aligned_matrices(x, y, ("image", "text"))
    sums = (torch.stack([u.sum(0), v.sum(0), (u * v).sum(0)]) for u, v in _unit_pairs(x, y))
    u_sum, v_sum, own = total(sums)
    n = len(x)
    return ((u_sum @ v_sum - own.sum()) / (n * (n - 1))).clamp(-1, 1)


def unit_differences(x: Float[Matrix, "n d"], y: Float[Matrix, "n d"]) -> Float[Tensor, ""]:
    """Σ‖u_i − v_i‖² of the unit rows of aligned images and texts."""
    return total((u - v).square().sum() for u, v in _unit_pairs(x, y))


def distances_from_sums(x: LeftOut) -> Float[Tensor, " b"]:
    """mean_cosine_distance of each subset."""
    return x.unit_spreads / (x.counts - 1)


def _random_from_sums(x: LeftOut, y: LeftOut) -> Float[Tensor, " b"]:
    n, own = x.counts, x.counts - x.differences(y) / 2
    means = x.unit_means + x.unit_mean, y.unit_means + y.unit_mean
    return ((n * n * (means[0] * means[1]).sum(1) - own) / (n * (n - 1))).clamp(-1, 1)


def _unit_pairs(x: Float[Matrix, "n d"], y: Float[Matrix, "n d"]) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(unit_blocks(x, name="image"), unit_blocks(y, name="text"), strict=True)


add_measure(
    Measure(
        name="average_cosine",
        streams=True,
        aggregated=True,
        function=average_cosine,
        from_sums=lambda x: 1 - distances_from_sums(x),
    )
)
add_measure(Measure(name="min_pairwise_cosine", streams=True, function=min_pairwise_cosine))
add_measure(
    Measure(
        name="matching_cosine",
        streams=True,
        function=matching_cosine,
        from_sums=lambda x, y: (1 - x.differences(y) / (2 * x.counts)).clamp(-1, 1),
    )
)
add_measure(Measure(name="random_cosine", streams=True, function=random_cosine, from_sums=_random_from_sums))
