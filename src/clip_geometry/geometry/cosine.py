"""Cosines within one set and between two. Everything but the minimum is linear in n."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import single_is_exact
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.sums import UnitPairs, UnitSums
from clip_geometry.rows.arguments import Integer, block_number
from clip_geometry.rows.matrix import Matrix, Rows, as_matrix, unit_rows
from clip_geometry.rows.streamed import StreamedRows


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
        >>> round(cg.average_cosine(x), 3)
        0.487
    """
    return 1 - UnitSums.of(x).mean_distance


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
    if not isinstance(u, StreamedRows) and single_is_exact(u.device):
        minima = _row_minima(u.detach().float(), block_size)
        rounding = (u.shape[1] + 8) * torch.finfo(torch.float32).eps  # of two float32 products of unit rows
        possible = u[minima <= minima.min() + rounding]
        if 2 * len(possible) <= len(u):
            least = [(a @ b.T).min() for a in possible.split(block_size) for b in u.split(block_size)]
            return torch.stack(least).min().clamp(-1, 1)
    return _row_minima(u, block_size).min().clamp(-1, 1)


def _row_minima(u: Float[Matrix, "n d"], block_size: int) -> Float[Tensor, " n"]:
    """The smallest product of each row with those of its own block and the later ones."""
    spans = [slice(start, start + block_size) for start in range(0, len(u), block_size)]
    parts = enumerate(u.split(block_size))
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
        >>> round(cg.matching_cosine(image, image + text), 3)
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
        >>> round(cg.random_cosine(image + 1, image + text + 1), 3)
        0.392
    """
    pairs = UnitPairs.of(x, y)
    n, matching = pairs.n, pairs.n - pairs.apart / 2
    return ((n * n * (pairs.image.mean @ pairs.text.mean) - matching) / (n * (n - 1))).clamp(-1, 1)


add_measure(Measure(name="average_cosine", function=average_cosine, statistic=UnitSums, streams=True, aggregated=True))
add_measure(Measure(name="min_pairwise_cosine", function=min_pairwise_cosine, streams=True))
add_measure(Measure(name="matching_cosine", function=matching_cosine, statistic=UnitPairs, streams=True))
add_measure(Measure(name="random_cosine", function=random_cosine, statistic=UnitPairs, streams=True))
