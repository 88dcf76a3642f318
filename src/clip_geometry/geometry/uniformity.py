"""Alignment and uniformity (Wang & Isola 2020): pairs close together, all rows spread out."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer, Number, block_number, positive_number
from clip_geometry.geometry._core.distances import squared_distances
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.left_out import LeftOut
from clip_geometry.geometry._core.rows import Rows, about, as_aligned_matrices, as_matrix, blocks, mean_row, total
from clip_geometry.geometry.measure import Measure, add_measure


@in_kind
def alignment(x: Rows, y: Rows) -> Float[Tensor, ""]:
    """Mean squared distance of matching pairs, ‖x_i − y_i‖², rows as given.

    At least 0, where pairs coincide. On unit rows at most 4, and equal to 2 − 2 `matching_cosine`. Source: Wang & Isola
    2020.

    Args:
        x: Rows, (n, d), n ≥ 1.
        y: Rows, (n, d), aligned with x.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The numbers of rows or the dimensions differ.

    Example:
        >>> import clip_geometry as cg
        >>> cg.alignment([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]])
        1.0
    """
    x, y = as_aligned_matrices(x, y, ("image", "text"), least=1)
    return total((a - b).square().sum() for a, b in zip(blocks(x), blocks(y), strict=True)) / len(x)


@in_kind
def uniformity(x: Rows, *, t: Number = 2.0, block_size: Integer = 1024) -> Float[Tensor, ""]:
    """Uniformity: log mean_{i<j} exp(−t‖x_i − x_j‖²), rows as given.

    At most 0, where all rows coincide; lower is more uniform. On unit rows at least −4t, and about −2t for many rows of
    high dimension spread evenly. O(n²d), in blocks, each pair once, never an n × n matrix. Source: Wang & Isola 2020.

    Args:
        x: Rows, (n, d), n ≥ 2.
        t: Inverse temperature, positive and finite.
        block_size: Rows per block.

    Returns:
        The logarithm, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: t is not positive and finite.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        >>> round(cg.uniformity(unit), 3)
        -3.091
    """
    t, block_size = positive_number(t, "t"), block_number(block_size)
    x = as_matrix(x)
    rows = about(x, mean_row(x))
    sums = []
    for first, block in zip(range(0, len(rows), block_size), rows.split(block_size), strict=True):
        for start in range(first, len(rows), block_size):
            squares = squared_distances(block, rows[start : start + block_size])
            if start == first:
                i, j = torch.triu_indices(len(block), len(block), offset=1, device=block.device)
                squares = squares[i, j]
            if squares.numel():  # one row has no pairs
                sums.append(_sums(t * squares.flatten()))
    return _log_mean(sums)


def _left_out(rows: LeftOut, *, t: float = 2.0) -> Iterator[Tensor]:
    """uniformity without each block, from the sums over the pairs of every two blocks."""
    x = rows.rows.double() - mean_row(rows.rows)
    groups = {block: part for block in range(-1, rows.blocks) if len(part := x[rows.block_of == block])}
    sums = {}
    for i, left in groups.items():
        for j, right in groups.items():
            if i < j:
                sums[i, j] = _sums(t * squared_distances(left, right).flatten())
        if len(left) > 1:
            sums[i, i] = _sums(t * squared_distances(left, left)[*torch.triu_indices(len(left), len(left), offset=1)])
    for block in range(rows.blocks):
        yield _log_mean([each for pair, each in sums.items() if block not in pair])


@in_kind
def cross_uniformity(x: Rows, y: Rows, *, t: Number = 2.0, block_size: Integer = 1024) -> Float[Tensor, ""]:
    """Cross-modal uniformity: log mean_{i≠j} exp(−t‖x_i − y_j‖²) over pairs that do not match, rows as given.

    At most 0, where all rows of both sets coincide; lower is more uniform. On unit rows at least −4t, and about −2t for
    many rows of high dimension spread evenly. O(n²d), in blocks, never an n × n matrix. Source: Fahim et al.
    2024, as their code computes it (`cross_encoder_uniform_loss` of github.com/abrar-fahim/contrastive-gap, t = 2).

    Args:
        x: Rows, (n, d), n ≥ 2.
        y: Rows, (n, d), aligned with x.
        t: Inverse temperature, positive and finite.
        block_size: Rows per block.

    Returns:
        The logarithm, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The numbers of rows or the dimensions differ, or t is not positive and finite.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rows = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> image, text = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
        >>> round(cg.cross_uniformity(image, text), 3)
        -3.088
    """
    t, block_size = positive_number(t, "t"), block_number(block_size)
    x, y = as_aligned_matrices(x, y, ("image", "text"))
    middle = (mean_row(x) + mean_row(y)) / 2
    x, y = about(x, middle), about(y, middle)
    sums = []
    for first, block in zip(range(0, len(x), block_size), x.split(block_size), strict=True):
        for start in range(0, len(y), block_size):
            squares = squared_distances(block, y[start : start + block_size])
            if start == first:
                squares = squares[~torch.eye(len(block), dtype=torch.bool, device=block.device)]
            if squares.numel():  # one pair has no others
                sums.append(_sums(t * squares.flatten()))
    return _log_mean(sums)


def _cross_left_out(image: LeftOut, text: LeftOut, *, t: float = 2.0) -> Iterator[Tensor]:
    """cross_uniformity without each block, from the sums over every two blocks. Both sets lose the same rows."""
    middle = (mean_row(image.rows) + mean_row(text.rows)) / 2
    x, y = image.rows.double() - middle, text.rows.double() - middle
    sums = {}
    for i in image.block_of.unique().tolist():
        for j in image.block_of.unique().tolist():
            left, right = image.block_of == i, image.block_of == j
            squares = squared_distances(x[left], y[right])
            if i == j:
                squares = squares[~torch.eye(len(squares), dtype=torch.bool, device=x.device)]
            if squares.numel():
                sums[i, j] = _sums(t * squares.flatten())
    for block in range(image.blocks):
        yield _log_mean([each for pair, each in sums.items() if block not in pair])


def _sums(exponents: Float[Tensor, " p"]) -> Float[Tensor, "4"] | list[float]:
    """Sums over the exponents e_p = t‖x_i − x_j‖² of one block: their minimum `low`, Σ exp(low − e_p), Σ (1 − exp(low −
    e_p)), which keeps its digits where it is small, and the number of pairs."""
    low = exponents.detach().amin()
    sums = [low, (low - exponents).exp().sum(), -(low - exponents).expm1().sum(), low.new_tensor(float(len(exponents)))]
    if exponents.requires_grad or exponents.is_cuda:
        return torch.stack(sums)
    # small tensors that stay alive keep glibc from reusing the megabytes that are freed around them
    return [float(each) for each in sums]


def _log_mean(parts: Sequence[Float[Tensor, "4"] | list[float]]) -> Float[Tensor, ""]:
    """log of the mean of exp(−e_p) over all pairs: −low + log(mean of exp(low − e_p)).

    Where that mean is near 1, its logarithm would keep absolute digits only, so that it is taken from the falls: the
    uniformity of tight rows is exact too.
    """
    lows, exps, falls, pairs = torch.stack([torch.as_tensor(part, dtype=torch.float64) for part in parts], dim=1)
    low = lows.amin()
    lag = low - lows
    count = pairs.sum()
    mean = (exps * lag.exp()).sum() / count
    fall = (falls * lag.exp() - pairs * lag.expm1()).sum() / count
    return torch.where(mean > 0.5, torch.log1p(-fall.clamp(max=0.75)), mean.log()) - low


add_measure(Measure(name="alignment", streams=True, function=alignment))
add_measure(Measure(name="uniformity", streams=True, function=uniformity, left_out=_left_out))
add_measure(Measure(name="cross_uniformity", streams=True, function=cross_uniformity, left_out=_cross_left_out))
