"""Mean Euclidean distance of every row to its own class and to the nearest other one, in blocks, each pair once.

Rows are sorted by class, so that a block holds few classes: its distances are taken about a point near these, where
products of tight classes do not cancel, and a class is complete after few blocks, so that no n × K matrix is kept.
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

WORTH_IT = 8192  # rows from which on a GPU takes the kernel: below, compiling it takes longer than all else
BLOCK = 1024  # rows: 8 MB of float64 distances
KEPT = 2**24  # sums at a time: 128 MB
MOST = 8192  # chosen rows at a time: 16 MB of float32 ones at d = 512
SAMPLE = 9  # rows of a class whose median is its centre: near most rows, however far away some are


class _SortedRows(NamedTuple):
    """Rows sorted by class, large classes first, in the precision of the products, and scaled."""

    rows: Float[Tensor, "n d"]
    codes: Int[Tensor, " n"]  # ascending
    sizes: Float[Tensor, " k"]  # of the classes
    bounds: list[int]  # class c has the rows bounds[c] … bounds[c + 1] − 1
    order: Int[Tensor, " n"]  # where the rows were


class _Run(NamedTuple):
    """Consecutive classes that fill a block, or one larger class in several blocks; and a point near its rows."""

    classes: range
    blocks: list[slice]
    centre: Float[Tensor, " d"]


def mean_distances(
    x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, block_size: int = BLOCK
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Mean distance of each row to the others of its class (0 for the only row) and to the nearest other class.

    Both in one unit of length, which is not that of x. codes: 0..k − 1, each at least once, k ≥ 2. Products are
    float32 unless x is float64 or has a gradient. Memory: a copy of x, and blocks; with a gradient n². Large float32
    sets on a GPU go through one kernel instead (see fused_mean_distances).
    """
    fused = takes_kernel(x)
    single = x.dtype != torch.float64 and not x.requires_grad and single_is_exact(x.device)
    data = _sort(x, codes, k, single=fused or single)
    if fused:
        from clip_geometry.geometry.distances._fused import fused_mean_distances  # it imports Triton

        own, nearest = fused_mean_distances(data.rows, data.codes, data.bounds)
    else:
        own, nearest = _in_blocks(data, block_size)
    others = (data.sizes - 1).clamp(min=1)[data.codes]
    back = data.order.argsort()
    return (own / others)[back], nearest[back]


def takes_kernel(rows: Float[Tensor, "n d"]) -> bool:
    """Whether mean distances of these rows are taken by the kernel: float32 or less, no gradient, many, on a GPU."""
    if rows.dtype == torch.float64 or rows.requires_grad or not rows.is_cuda or len(rows) < WORTH_IT:
        return False
    nvidia = torch.version.cuda is not None and torch.cuda.get_device_capability(rows.device) >= (8, 0)
    return nvidia and find_spec("triton") is not None


def _in_blocks(data: _SortedRows, block_size: int) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Sum of distances within the own class, and mean distance to the nearest other one. Each pair of rows once.

    A run of several classes lies in one block, so that its sums are complete; those of one large class are added up.
    """
    own = data.rows.new_zeros(len(data.rows), dtype=torch.float64)
    nearest = torch.full_like(own, torch.inf)
    runs = _runs(data, block_size)
    for i, left in enumerate(runs):
        for right in runs[: i + 1]:
            lowest: dict[tuple[int, int, int], Any] = defaultdict(float)  # by classes and rows
            for a, b in product(left.blocks, right.blocks):
                if left is right and a.start > b.start:
                    continue
                apart = distances(data.rows[a], data.rows[b], centre=(left.centre + right.centre) / 2)
                sides = [(apart.T, b, a, right.classes), (apart, a, b, left.classes)]
                for part, summed, to, classes in sides[: 1 if a == b else 2]:
                    sums = part.new_zeros((len(classes), part.shape[1]))
                    sums = sums.index_add(0, data.codes[summed] - classes.start, part)
                    if left is right:
                        mine = (data.codes[to] - classes.start)[None]
                        own[to] += sums.gather(0, mine)[0]
                        sums = sums.scatter(0, mine, torch.inf)
                    means = sums / data.sizes[classes.start : classes.stop, None]
                    lowest[classes.start, to.start, to.stop] += means.amin(0)
            for (_, start, stop), means in lowest.items():
                before = nearest[start:stop].clone()  # which the gradient may need
                nearest[start:stop] = torch.minimum(before, means)
    return own, nearest


def _sort(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, single: bool) -> _SortedRows:
    sizes, by_size = torch.bincount(codes, minlength=k).sort(descending=True, stable=True)
    codes, order = by_size.argsort()[codes].sort(stable=True)
    # float16 and bfloat16 rows are float32 rows
    rows = x[order].to(torch.float32 if single else torch.float64)
    least, largest = rows.detach().aminmax()
    rows = rows.mul_(near_one(float(torch.maximum(-least, largest))))  # float32 squares stay in range
    return _SortedRows(rows, codes, sizes.double(), [0, *sizes.cumsum(0).tolist()], order)


def _runs(data: _SortedRows, block_size: int) -> list[_Run]:
    starts = [0]
    for c in range(1, len(data.bounds) - 1):
        if data.bounds[c + 1] - data.bounds[starts[-1]] > block_size:
            starts.append(c)
    runs = []
    for first, last in pairwise([*starts, len(data.bounds) - 1]):
        start, stop = data.bounds[first], data.bounds[last]
        rows = data.rows[start:stop].detach()
        centre = rows[:: math.ceil(len(rows) / SAMPLE)].median(dim=0).values
        blocks = [slice(k, min(k + block_size, stop)) for k in range(start, stop, block_size)]
        runs.append(_Run(range(first, last), blocks, centre))
    return runs


def sums_by_class(
    x: Float[Matrix, "n d"], chosen: Int[Tensor, " m"], codes: Int[Tensor, " n"], k: int
) -> Iterator[tuple[Int[Tensor, " b"], Float[Tensor, "k b"]]]:
    """Some of the chosen rows at a time, and the sums of their distances to the rows of each class, in one unit of
    length. StreamedRows are read in order: once for the unit, and once for up to MOST chosen rows."""
    single = x.dtype != torch.float64 and single_is_exact(x.device)
    dtype = torch.float32 if single else torch.float64
    factor = near_one(max(float(part.abs().amax()) for part in x.split(SUMMED)))
    for some in chosen.split(max(1, min(MOST, KEPT // k))):
        rows = (x[some].to(dtype) * factor).split(BLOCK)
        sums = torch.zeros((k, len(some)), dtype=torch.float64, device=x.device)
        for block, own in zip(x.split(BLOCK), codes.split(BLOCK), strict=True):
            block = block.to(dtype) * factor
            for part, into in zip(rows, sums.split(BLOCK, dim=1), strict=True):
                center = (block.mean(0) + part.mean(0)) / 2
                into.index_add_(0, own, distances(block, part, centre=center))
        yield some, sums
