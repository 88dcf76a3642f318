"""Sums of the Euclidean distances of some rows to groups of others, block by block."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import count_cancelled, distances, single_is_exact
from clip_geometry.rows.matrix import SUMMED, Matrix
from clip_geometry.rows.single import near_one

BLOCK = 1024  # rows: 8 MB of float64 distances
GPU_BLOCK = 8192
KEPT = 2**24  # sums at a time: 128 MB
MOST = 8192  # rows of `of` at a time: 16 MB of float32 ones at d = 512


def sums_of_distances(
    x: Float[Matrix, "n d"], of: Int[Tensor, " m"], groups: Int[Tensor, " n"], count: int
) -> Iterator[tuple[Int[Tensor, " b"], Float[Tensor, "g b"]]]:
    """Rows out of `of`, some at a time, and the sum of their distances to the rows of each group, in float64.

    groups: 0..count − 1 of each row of x; rows near each other, one after the other in `of`, cancel least. Lengths are
    in one unit, which is not that of x. A block of rows is copied at a time. StreamedRows are read in order: once for
    the unit, and once for up to MOST rows of `of`.
    """
    single = x.dtype != torch.float64 and single_is_exact(x.device)
    dtype = torch.float32 if single else torch.float64
    factor = near_one(max(float(part.abs().amax()) for part in x.split(SUMMED)))
    size = GPU_BLOCK if x.is_cuda else BLOCK
    for some in of.split(max(1, min(MOST, KEPT // count))):
        rows = (x[some].to(dtype) * factor).split(size)
        sums = torch.zeros((count, len(some)), dtype=torch.float64, device=x.device)
        # Their distances to each other are taken separately: a row and itself cancel, which is known of one object
        # and would have every other block measured twice.
        others = torch.ones(len(x), dtype=torch.bool, device=x.device).index_fill_(0, some, False)
        for start in range(0, len(x), size):
            part = slice(start, start + size)
            other = others[part]
            if other.any():
                _add(sums, rows, x[part][other].to(dtype) * factor, groups[part][other])
        for part, its_groups in zip(rows, groups[some].split(size), strict=True):
            _add(sums, rows, part, its_groups)
        yield some, sums


def _add(sums: Float[Tensor, "g m"], rows: tuple[Tensor, ...], block: Float[Tensor, "b d"], groups: Tensor) -> None:
    """Distances of all rows to those of a block, to the sums of their groups."""
    for part, into in zip(rows, sums.split(len(rows[0]), dim=1), strict=True):
        between = (block.mean(0) + part.mean(0)) / 2
        # on a GPU, distances takes all of them from differences unless it is given the count
        cancelled = int(count_cancelled(block, part, between)) if block.is_cuda else None
        apart = distances(block, part, centre=between, cancelled=cancelled)
        into.index_add_(0, groups, apart.double())
