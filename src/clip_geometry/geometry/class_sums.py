"""The first two moments of every class of labelled rows: all that squared distances and cosines need, in O(nd)."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.rows import BLOCK, mean_row


class ClassSums(NamedTuple):
    """Of n rows w in k classes; all float64. A class may be empty: its sum, offset and scatter are 0."""

    counts: Float[Tensor, " k"]  # n_ω, rows of each class
    mean: Float[Tensor, " d"]  # μ, of all rows
    sums: Float[Tensor, "k d"]  # Σ_ω (w − μ)
    offsets: Float[Tensor, "k d"]  # mean of the class − μ
    scatters: Float[Tensor, " k"]  # Σ_ω ‖w − mean of the class‖²


def class_sums(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int) -> ClassSums:
    """The sums over classes 0..k−1, from differences only: nothing cancels far from the origin or in tight classes."""
    codes = codes.to(x.device)
    mean = mean_row(x)
    sums, counts, scatters = mean.new_zeros(k, len(mean)), mean.new_zeros(k), mean.new_zeros(k)
    parts = list(zip(x.split(BLOCK), codes.split(BLOCK), strict=True))
    for block, own in parts:
        sums = sums.index_add(0, own, block.double() - mean)
        counts = counts.index_add(0, own, counts.new_ones(len(own)))
    offsets = sums / counts.clamp(min=1)[:, None]
    for block, own in parts:
        scatters = scatters.index_add(0, own, (block.double() - mean - offsets[own]).square().sum(1))
    return ClassSums(counts, mean, sums, offsets, scatters)
