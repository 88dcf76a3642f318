"""The first two moments of each class of labeled rows, which suffice for squared distances and cosines, in O(nd)."""

import operator
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.rows.matrix import BLOCK, CACHED, SUMMED, Matrix, mean_row, total
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.rows.threads import spans_in_threads

FEWEST_COLUMNS = 64  # fewest columns per thread for threads to pay off


class ClassSums(NamedTuple):
    """Sums over n rows w in k classes, in float64. A class may be empty; its sum, offset and scatter are then 0."""

    counts: Float[Tensor, " k"]  # n_ω, the number of rows of each class
    mean: Float[Tensor, " d"]  # μ, the mean of all rows
    sums: Float[Tensor, "k d"]  # Σ_ω (w − μ)
    offsets: Float[Tensor, "k d"]  # mean of each class − μ
    scatters: Float[Tensor, " k"]  # Σ_ω ‖w − mean of the class‖²


def class_sums(x: Float[Matrix, "n d"], codes: Int[Tensor, " n"], k: int) -> ClassSums:
    """Return the sums over the classes 0..k − 1, from differences only.

    Nothing cancels for rows far from the origin or in tight classes. StreamedRows are read twice.
    """
    if isinstance(x, StreamedRows):
        return _streamed_sums(x, codes, k)
    codes = codes.to(x.device)
    mean = mean_row(x)
    sums = mean.new_zeros(k, len(mean))
    counts, scatters = mean.new_zeros(k), mean.new_zeros(k)
    blocks = list(zip(x.split(BLOCK), codes.split(BLOCK), strict=True))
    for block, block_codes in blocks:
        sums = sums.index_add(0, block_codes, block.double() - mean)
        counts = counts.index_add(0, block_codes, counts.new_ones(len(block_codes)))
    offsets = sums / counts.clamp(min=1)[:, None]
    for block, block_codes in blocks:
        scatters = scatters.index_add(0, block_codes, (block.double() - mean - offsets[block_codes]).square().sum(1))
    return ClassSums(counts, mean, sums, offsets, scatters)


def _streamed_sums(x: StreamedRows, codes: Int[Tensor, " n"], k: int) -> ClassSums:
    """Compute the sums in two passes: first the class means, then the scatters about them."""
    counts = torch.bincount(codes, minlength=k).double()
    first = x[0].double()

    def add(sums: Tensor, block: Tensor, block_codes: Tensor) -> Tensor:
        def add_columns(columns: slice) -> None:
            into, start = sums[:, columns], first[columns]
            for part, codes in _parts(block[:, columns], block_codes):
                into.index_add_(0, codes, part - start)

        spans_in_threads(add_columns, block.shape[1], FEWEST_COLUMNS)
        return sums

    sums = x.aggregate(lambda: first.new_zeros(k, len(first)), add, operator.add, SUMMED, codes)
    shift = sums.sum(0) / len(x)  # offset of the mean from the first row
    sums -= counts[:, None] * shift
    offsets = sums / counts.clamp(min=1)[:, None]
    means = first + shift + offsets

    def add_squares(scatters: Tensor, block: Tensor, block_codes: Tensor) -> Tensor:
        def squares(columns: slice) -> Tensor:
            about = means[:, columns]
            parts = _parts(block[:, columns], block_codes)
            return torch.cat([(part - about[codes]).square_().sum(1) for part, codes in parts])

        return scatters.index_add_(0, block_codes, total(spans_in_threads(squares, block.shape[1], FEWEST_COLUMNS)))

    scatters = x.aggregate(lambda: first.new_zeros(k), add_squares, operator.add, SUMMED, codes)
    return ClassSums(counts, first + shift, sums, offsets, scatters)


def _parts(block: Tensor, block_codes: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield some rows at a time, in float64, with their codes."""
    return ((part.double(), codes) for part, codes in zip(block.split(CACHED), block_codes.split(CACHED), strict=True))
