"""Sums of the Euclidean distances of some rows to groups of others, block by block."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distances import count_cancelled, distances, single_is_exact

BLOCK = 1024  # rows: 8 MB of float64 distances
GPU_BLOCK = 8192
KEPT = 2**24  # sums at a time: 128 MB


def sums_of_distances(
    x: Float[Tensor, "n d"],
    of: Int[Tensor, " m"],
    to: Int[Tensor, " r"],
    groups: Int[Tensor, " r"],
    count: int,
    *,
    exact: bool = False,
) -> Iterator[tuple[Int[Tensor, " b"], Float[Tensor, "g b"]]]:
    """Rows out of `of`, some at a time, and the sum of their distances to each group of the rows `to`, in float64.

    groups: 0..count − 1 of each row of `to`; rows near each other, one after the other in `of` and of one group in
    `to`, cancel least. Lengths are in one unit, which is not that of x. exact: products in float64, as for float64
    rows; otherwise in float32. A block of rows is copied at a time.
    """
    single = not exact and x.dtype != torch.float64 and single_is_exact(x.device)
    dtype = torch.float32 if single else torch.float64
    least, most = x.aminmax()
    exponent = math.frexp(float(torch.maximum(-least, most)))[1]
    factor = 2.0 ** -min(max(exponent, -126), 126)  # entries near 1, which changes no digit
    size = GPU_BLOCK if x.is_cuda else BLOCK
    order = groups.argsort(stable=True)
    to, groups = to[order], groups[order]
    for some in of.split(max(1, min(size, KEPT // count))):
        rows = x[some].to(dtype) * factor
        centre = rows.mean(0)
        sums = rows.new_zeros((count, len(some)), dtype=torch.float64)
        for others, their_groups in zip(to.split(size), groups.split(size), strict=True):
            block = x[others].to(dtype) * factor
            between = (centre + block.mean(0)) / 2
            # on a GPU distances wants to be told, or takes all of them from differences
            cancelled = int(count_cancelled(block, rows, between)) if x.is_cuda else None
            apart = distances(block, rows, centre=between, cancelled=cancelled)
            first = int(their_groups[0])
            span = slice(first, int(their_groups[-1]) + 1)
            sums[span].index_add_(0, their_groups - first, apart.double())
        yield some, sums
