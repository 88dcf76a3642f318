"""Mean Euclidean distance of every row to its own class and to the nearest other one, in blocks, each pair once.

Rows are sorted by class, so that a block holds few classes: its distances are taken about a point near these, where
products of tight classes do not cancel, and a class is complete after few blocks, so that no n × K matrix is kept.
"""

import math
import os
from importlib.util import find_spec
from itertools import groupby, pairwise, product
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import count_cancelled, distances, near_one, single_is_exact
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Literal, one_of

Products: TypeAlias = Literal["fp16x3", "tf32x3", "ieee", "tf32", "fp16", "bf16"]

PRODUCTS = ("fp16x3", "tf32x3", "ieee", "tf32", "fp16", "bf16")  # of the kernel; the first by default
WORTH_IT = 8192  # rows from which on a GPU takes the kernel: below, compiling it takes longer than all else
SAMPLE = 9  # rows of a class whose median is its centre: near most rows, however far away some are


class _SortedRows(NamedTuple):
    """Rows sorted by class, large classes first, in the precision of the products, and scaled."""

    rows: Float[Tensor, "n d"]
    codes: Int[Tensor, " n"]  # ascending
    sizes: Float[Tensor, " k"]  # of the classes
    bounds: list[int]  # class c has the rows bounds[c] … bounds[c + 1] − 1
    order: Int[Tensor, " n"]  # where the rows were


class _Tile(NamedTuple):
    """Two blocks of rows, the run of classes that each belongs to, and a point near both."""

    left: slice
    right: slice
    runs: tuple[range, range]
    centre: Float[Tensor, " d"]
    cancelled: int | None = None


def mean_distances(
    x: Float[Tensor, "n d"],
    codes: Int[Tensor, " n"],
    k: int,
    *,
    block_size: int = 1024,
    ahead: bool | None = None,
    products: Products | None = None,
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Mean distance of each row to the others of its class (0 for the only row) and to the nearest other class.

    Both in one unit of length, which is not that of x. codes: 0..k − 1, each at least once, k ≥ 2. Products are
    float32 unless x is float64 or has a gradient. Memory: a copy of x, and blocks; with a gradient n². ahead: count
    the products that cancel before they are used, so that no step waits for the device (by default on a GPU only).
    Large float32 sets on a GPU go through one kernel instead, in the given products (see fused_mean_distances).
    """
    fused = fused_is_possible(x, products)
    single = x.dtype != torch.float64 and not x.requires_grad and single_is_exact(x.device)
    data = _sort(x, codes, k, single=fused or single)
    if fused:
        from clip_geometry.geometry.distances._fused import fused_mean_distances  # it imports Triton

        own, nearest = fused_mean_distances(data.rows, data.codes, data.bounds, products=products or PRODUCTS[0])
    else:
        own, nearest = _in_blocks(data, block_size, x.is_cuda if ahead is None else ahead)
    others = (data.sizes - 1).clamp(min=1)[data.codes]
    back = data.order.argsort()
    return (own / others)[back], nearest[back]


def fused_is_possible(rows: Float[Tensor, "n d"], products: Products | None = None) -> bool:
    """Whether mean distances of these rows are taken by the kernel: float32 or less, no gradient, many, on a GPU.

    products: asked for by name they are taken however few rows there are, and an InputError says why they cannot be.
    """
    single = rows.dtype != torch.float64 and not rows.requires_grad
    if products is None:
        return single and rows.is_cuda and len(rows) >= WORTH_IT and _kernel_runs(rows.device)
    products = one_of(products, "products", PRODUCTS)
    if not single:
        what = "rows with a gradient" if rows.requires_grad else "float64 rows"
        raise InputError(f"products {products!r} were asked for of {what}; expected float32 rows without a gradient")
    if not _kernel_runs(rows.device):
        raise InputError(
            f"products {products!r} were asked for of rows on {rows.device}; expected Triton and rows on an NVIDIA GPU "
            "(Ampere or later); without products they are measured where they are"
        )
    return True


def _kernel_runs(device: torch.device) -> bool:
    nvidia = device.type == "cuda" and torch.version.cuda is not None
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not interpreted and not (nvidia and torch.cuda.get_device_capability(device) >= (8, 0)):
        return False
    return find_spec("triton") is not None


def _in_blocks(data: _SortedRows, block_size: int, ahead: bool) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Sum of distances within the own class, and mean distance to the nearest other one.

    A run of several classes lies in one block, so that its sums are complete; those of one large class are added up.
    """
    own = data.rows.new_zeros(len(data.rows), dtype=torch.float64)
    nearest = torch.full_like(own, torch.inf)
    for (left, right), tiles in groupby(_tiles(data, block_size, ahead), key=attrgetter("runs")):
        of_large: dict[tuple[int, int], tuple[slice, Tensor]] = {}
        for tile in tiles:
            rows = data.rows[tile.left]
            others = rows if tile.right == tile.left else data.rows[tile.right]
            apart = distances(rows, others, centre=tile.centre, cancelled=tile.cancelled)
            sides = [(apart.T, tile.right, tile.left, right), (apart, tile.left, tile.right, left)]
            for part, rows, others, classes in sides[: 1 if tile.left == tile.right else 2]:
                sums = _sum_by_class(part, data.codes[rows] - classes.start, len(classes))
                if left == right:
                    mine = (data.codes[others] - classes.start)[None]
                    own[others] += sums.gather(0, mine)[0]
                    sums = sums.scatter(0, mine, torch.inf)
                means = sums / data.sizes[classes.start : classes.stop, None]
                if len(classes) > 1:
                    _lower(nearest, others, means)
                else:
                    key = classes.start, others.start
                    of_large[key] = others, of_large[key][1] + means if key in of_large else means
        for others, means in of_large.values():
            _lower(nearest, others, means)
    return own, nearest


def _sort(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, single: bool) -> _SortedRows:
    sizes, by_size = torch.bincount(codes, minlength=k).sort(descending=True, stable=True)
    codes, order = by_size.argsort()[codes].sort(stable=True)
    # float16 and bfloat16 rows are float32 rows
    rows = x[order].to(torch.float32 if single else torch.float64)
    least, largest = rows.detach().aminmax()
    rows = rows.mul_(near_one(float(torch.maximum(-least, largest))))  # float32 squares stay in range
    return _SortedRows(rows, codes, sizes.double(), [0, *sizes.cumsum(0).tolist()], order)


def _tiles(data: _SortedRows, block_size: int, ahead: bool) -> list[_Tile]:
    """Every pair of rows once, in tiles of two blocks; `ahead`: with the number of products that cancel in each."""
    starts = [0]  # of runs of consecutive classes that fill a block, or of one larger class
    for c in range(1, len(data.bounds) - 1):
        if data.bounds[c + 1] - data.bounds[starts[-1]] > block_size:
            starts.append(c)
    runs = [range(start, stop) for start, stop in pairwise([*starts, len(data.bounds) - 1])]
    blocks, centres = [], []
    for run in runs:
        start, stop = data.bounds[run.start], data.bounds[run.stop]
        rows = data.rows[start:stop].detach()
        centres.append(rows[:: math.ceil(len(rows) / SAMPLE)].median(dim=0).values)
        blocks.append([slice(k, min(k + block_size, stop)) for k in range(start, stop, block_size)])
    tiles = []
    for i, left_run in enumerate(runs):
        for j, right_run in enumerate(runs[: i + 1]):
            for left, right in product(blocks[i], blocks[j]):
                if i != j or left.start <= right.start:
                    tiles.append(_Tile(left, right, (left_run, right_run), (centres[i] + centres[j]) / 2))
    if ahead:
        counts = [count_cancelled(data.rows[tile.left], data.rows[tile.right], tile.centre) for tile in tiles]
        known = torch.stack(counts).tolist()  # one wait for the device instead of one in every step
        tiles = [tile._replace(cancelled=count) for tile, count in zip(tiles, known, strict=True)]
    return tiles


def _lower(nearest: Float[Tensor, " n"], rows: slice, means: Float[Tensor, "k b"]) -> None:
    nearest[rows] = torch.minimum(nearest[rows].clone(), means.amin(0))  # a clone, which the gradient may need


def _sum_by_class(apart: Float[Tensor, "a b"], codes: Int[Tensor, " a"], k: int) -> Float[Tensor, "k b"]:
    """In float64."""
    if k == 1:
        return apart.sum(0, keepdim=True).double()  # a sum in float64 would copy all of them
    return apart.new_zeros((k, apart.shape[1]), dtype=torch.float64).index_add(0, codes, apart.double())
