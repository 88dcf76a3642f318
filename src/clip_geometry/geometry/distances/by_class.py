"""Mean Euclidean distance of each row to its own class and to the nearest other class.

Distances are computed in blocks, once for each pair of rows. Rows are sorted by class, so that a block holds few
classes. Its distances are computed about a point near these classes, where the products of tight classes do not cancel.
A class is complete after a few blocks, so no n × K matrix is stored.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise, product
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import distances, near_one, single_is_exact
from clip_geometry.rows.matrix import SUMMED, Matrix

WORTH_IT = 8192  # fewest rows for the GPU kernel; for fewer rows compiling it takes longer than everything else
BLOCK = 1024  # rows per block: 8 MB of float64 distances
KEPT = 2**24  # sums per block: 128 MB
MOST = 8192  # chosen rows per block: 16 MB in float32 at d = 512
SAMPLE = 9  # rows per class whose median serves as its center: near most rows, however far away some are


class _SortedRows(NamedTuple):
    """Rows sorted by class, largest classes first, scaled and in the precision of the products."""

    rows: Float[Tensor, "n d"]
    codes: Int[Tensor, " n"]  # ascending
    sizes: Float[Tensor, " k"]  # rows per class
    bounds: list[int]  # class c has the rows bounds[c] … bounds[c + 1] − 1
    order: Int[Tensor, " n"]  # original positions of the rows


class _Run(NamedTuple):
    """Consecutive classes that fill a block, or one larger class in several blocks, with a point near their rows."""

    classes: range
    blocks: list[slice]
    centre: Float[Tensor, " d"]


def mean_distances(
    x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, block_size: int = BLOCK
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the mean distance of each row to the rest of its class, and to the nearest other class.

    The first is 0 for the only row of a class. Both are in the same unit of length, which is not that of x. `codes` are
    0..k − 1, each of which occurs, with k ≥ 2. Products are float32 unless x is float64 or has a gradient. The memory
    needed is a copy of x and some blocks, or n² distances with a gradient. Large float32 sets on a GPU use a single
    kernel instead (see `fused_mean_distances`).
    """
    fused = takes_kernel(x)
    use_float32 = x.dtype != torch.float64 and not x.requires_grad and single_is_exact(x.device)
    sorted_rows = _sort(x, codes, k, single=fused or use_float32)
    if fused:
        # imported here because it imports Triton
        from clip_geometry.geometry.distances._fused import fused_mean_distances

        own, nearest = fused_mean_distances(sorted_rows.rows, sorted_rows.codes, sorted_rows.bounds)
    else:
        own, nearest = _in_blocks(sorted_rows, block_size)
    others = (sorted_rows.sizes - 1).clamp(min=1)[sorted_rows.codes]
    original_order = sorted_rows.order.argsort()
    return (own / others)[original_order], nearest[original_order]


def takes_kernel(rows: Float[Tensor, "n d"]) -> bool:
    """Return whether mean distances of these rows use the kernel: many rows, at most float32, no gradient, on a GPU."""
    if rows.dtype == torch.float64 or rows.requires_grad or not rows.is_cuda or len(rows) < WORTH_IT:
        return False
    nvidia = torch.version.cuda is not None and torch.cuda.get_device_capability(rows.device) >= (8, 0)
    return nvidia and find_spec("triton") is not None


def _in_blocks(sorted_rows: _SortedRows, block_size: int) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the summed distance to the own class and the mean distance to the nearest other class; use each pair once.

    A run is one large class in several blocks, or several small classes in one block. The sums of a large class are
    added up over its blocks; several classes need one block only, so their minimum is not added to anything.
    """
    own = sorted_rows.rows.new_zeros(len(sorted_rows.rows), dtype=torch.float64)
    nearest = torch.full_like(own, torch.inf)
    runs = _runs(sorted_rows, block_size)
    for i, left in enumerate(runs):
        for right in runs[: i + 1]:
            # keyed by the first class and the range of rows
            lowest: dict[tuple[int, int, int], Any] = defaultdict(float)
            for a, b in product(left.blocks, right.blocks):
                if left is right and a.start > b.start:
                    continue
                between = distances(sorted_rows.rows[a], sorted_rows.rows[b], centre=(left.centre + right.centre) / 2)
                # distances to the rows of `others` and their classes, summed for each of the rows `to`
                directions = [(between.T, b, a, right.classes), (between, a, b, left.classes)]
                for to_others, others, to, classes in directions[: 1 if a == b else 2]:
                    sums = to_others.new_zeros((len(classes), to_others.shape[1]))
                    sums = sums.index_add(0, sorted_rows.codes[others] - classes.start, to_others)
                    if left is right:
                        own_class = (sorted_rows.codes[to] - classes.start)[None]
                        own[to] += sums.gather(0, own_class)[0]
                        sums = sums.scatter(0, own_class, torch.inf)
                    means = sums / sorted_rows.sizes[classes.start : classes.stop, None]
                    lowest[classes.start, to.start, to.stop] += means.amin(0)
            for (_, start, stop), means in lowest.items():
                before = nearest[start:stop].clone()  # cloned because the gradient may need it
                nearest[start:stop] = torch.minimum(before, means)
    return own, nearest


def _sort(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, single: bool) -> _SortedRows:
    """Sort rows by class, largest class first, and scale them so that float32 squares stay in range."""
    sizes, by_size = torch.bincount(codes, minlength=k).sort(descending=True, stable=True)
    codes, order = by_size.argsort()[codes].sort(stable=True)
    # float16 and bfloat16 rows are converted to float32
    rows = x[order].to(torch.float32 if single else torch.float64)
    least, largest = rows.detach().aminmax()
    rows = rows.mul_(near_one(float(torch.maximum(-least, largest))))  # keeps float32 squares in range
    return _SortedRows(rows, codes, sizes.double(), [0, *sizes.cumsum(0).tolist()], order)


def _runs(sorted_rows: _SortedRows, block_size: int) -> list[_Run]:
    """Group consecutive classes into runs of at most `block_size` rows; a larger class is split into blocks."""
    starts = [0]
    for c in range(1, len(sorted_rows.bounds) - 1):
        if sorted_rows.bounds[c + 1] - sorted_rows.bounds[starts[-1]] > block_size:
            starts.append(c)
    runs = []
    for first, last in pairwise([*starts, len(sorted_rows.bounds) - 1]):
        start, stop = sorted_rows.bounds[first], sorted_rows.bounds[last]
        rows = sorted_rows.rows[start:stop].detach()
        centre = rows[:: math.ceil(len(rows) / SAMPLE)].median(dim=0).values
        blocks = [slice(k, min(k + block_size, stop)) for k in range(start, stop, block_size)]
        runs.append(_Run(range(first, last), blocks, centre))
    return runs


def sums_by_class(
    x: Float[Matrix, "n d"], chosen: Int[Tensor, " m"], codes: Int[Tensor, " n"], k: int
) -> Iterator[tuple[Int[Tensor, " b"], Float[Tensor, "k b"]]]:
    """Yield some of the chosen rows at a time, with the sums of their distances to the rows of each class.

    All sums are in the same unit of length. StreamedRows are read in order, once to find the unit and once for each
    block of up to MOST chosen rows.
    """
    use_float32 = x.dtype != torch.float64 and single_is_exact(x.device)
    dtype = torch.float32 if use_float32 else torch.float64
    factor = near_one(max(float(block.abs().amax()) for block in x.split(SUMMED)))
    for batch in chosen.split(max(1, min(MOST, KEPT // k))):
        rows = (x[batch].to(dtype) * factor).split(BLOCK)
        sums = torch.zeros((k, len(batch)), dtype=torch.float64, device=x.device)
        for block, block_codes in zip(x.split(BLOCK), codes.split(BLOCK), strict=True):
            block = block.to(dtype) * factor
            for batch_rows, into in zip(rows, sums.split(BLOCK, dim=1), strict=True):
                center = (block.mean(0) + batch_rows.mean(0)) / 2
                into.index_add_(0, block_codes, distances(block, batch_rows, centre=center))
        yield batch, sums
