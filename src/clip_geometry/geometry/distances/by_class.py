"""Mean Euclidean distance of every row to its own class and to the nearest other one, in blocks, each pair once.

Rows are sorted by class, so that a block holds few classes: its distances are taken about a point near these, where
products of tight classes do not cancel, and a class is complete after few blocks, so that no n × K matrix is kept.
"""

import math
import os
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import count_cancelled, distances, near_one, single_is_exact
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import one_of

if TYPE_CHECKING:
    Products: TypeAlias = Literal["fp16x3", "tf32x3", "ieee", "tf32", "fp16", "bf16"]
else:  # an unknown one is our sentence, not a type checker's
    Products = Any

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

    def span(self, classes: range) -> slice:
        return slice(self.bounds[classes.start], self.bounds[classes.stop])

    def centre(self, classes: range) -> Float[Tensor, " d"]:
        rows = self.rows[self.span(classes)].detach()
        return rows[:: math.ceil(len(rows) / SAMPLE)].median(dim=0).values


class _Tile(NamedTuple):
    """Two blocks of rows and a point near both."""

    left: slice
    right: slice
    centre: Float[Tensor, " d"]
    cancelled: int | None = None


class _Pair(NamedTuple):
    """Two runs of classes, either disjoint or the same, and what they have to be cut into."""

    left: range
    right: range
    tiles: list[_Tile]


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
    data = _sort(x, codes, k, single=fused or _is_single(x))
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
    """Sum of distances within the own class, and mean distance to the nearest other one."""
    own = data.rows.new_zeros(len(data.rows), dtype=torch.float64)
    nearest = torch.full_like(own, torch.inf)
    for pair in _plan(data, block_size, ahead):
        if pair.left != pair.right:
            nearest = _lower_between(nearest, data, pair)
        elif len(pair.left) == 1:
            for tile in pair.tiles:
                apart = _distances(data, tile)
                own[tile.left] += apart.sum(1).double()  # a sum in float64 would copy all of them
                if tile.left != tile.right:
                    own[tile.right] += apart.sum(0).double()
        else:  # the classes of one run of several lie in one tile
            (tile,) = pair.tiles
            mine = (data.codes[tile.left] - pair.left.start)[None]
            sums = _sum_by_class(_distances(data, tile), data, tile.left, pair.left)
            own[tile.left] = sums.gather(0, mine)[0]
            means = (sums / data.sizes[pair.left.start : pair.left.stop, None]).scatter(0, mine, torch.inf)
            nearest = _lower(nearest, tile.left, means)
    return own, nearest


def _is_single(x: Float[Tensor, "n d"]) -> bool:
    return x.dtype != torch.float64 and not x.requires_grad and single_is_exact(x.device)


def _sort(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, single: bool) -> _SortedRows:
    sizes, by_size = torch.bincount(codes, minlength=k).sort(descending=True, stable=True)
    codes, order = by_size.argsort()[codes].sort(stable=True)
    # float16 and bfloat16 rows are float32 rows
    rows = x[order].to(torch.float32 if single else torch.float64)
    least, largest = rows.detach().aminmax()
    rows = rows.mul_(near_one(float(torch.maximum(-least, largest))))  # float32 squares stay in range
    return _SortedRows(rows, codes, sizes.double(), [0, *sizes.cumsum(0).tolist()], order)


def _plan(data: _SortedRows, block_size: int, ahead: bool) -> list[_Pair]:
    """Every pair of rows once, in a tile of two blocks; `ahead`: with the number of products that cancel in each."""
    starts = [0]  # of runs of consecutive classes that fill a block, or of one larger class
    for c in range(1, len(data.bounds) - 1):
        if data.bounds[c + 1] - data.bounds[starts[-1]] > block_size:
            starts.append(c)
    runs = [range(start, stop) for start, stop in pairwise([*starts, len(data.bounds) - 1])]
    centres = [data.centre(run) for run in runs]
    pairs = [
        _Pair(run, run, _tiles(data, run, run, centre, block_size)) for run, centre in zip(runs, centres, strict=True)
    ]
    for i, left in enumerate(runs):
        for j, right in enumerate(runs[:i]):
            pairs.append(_Pair(left, right, _tiles(data, left, right, (centres[i] + centres[j]) / 2, block_size)))
    if not ahead:
        return pairs
    tiles = [tile for pair in pairs for tile in pair.tiles]
    counts = [count_cancelled(data.rows[tile.left], data.rows[tile.right], tile.centre) for tile in tiles]
    known = iter(torch.stack(counts).tolist())  # one wait for the device instead of one in every step
    return [pair._replace(tiles=[tile._replace(cancelled=next(known)) for tile in pair.tiles]) for pair in pairs]


def _tiles(data: _SortedRows, left: range, right: range, centre: Float[Tensor, " d"], block_size: int) -> list[_Tile]:
    return [
        _Tile(a, b, centre)
        for a in _blocks(data.span(left), block_size)
        for b in _blocks(data.span(right), block_size)
        if left != right or b.start >= a.start
    ]


def _blocks(span: slice, size: int) -> list[slice]:
    return [slice(start, min(start + size, span.stop)) for start in range(span.start, span.stop, size)]


def _distances(data: _SortedRows, tile: _Tile) -> Float[Tensor, "a b"]:
    left = data.rows[tile.left]
    right = left if tile.right == tile.left else data.rows[tile.right]
    return distances(left, right, centre=tile.centre, cancelled=tile.cancelled)


def _lower_between(nearest: Float[Tensor, " n"], data: _SortedRows, pair: _Pair) -> Float[Tensor, " n"]:
    """Lowers the mean distance to the nearest other class, for the rows on both sides.

    A run of several classes lies in one tile, whose sums are complete; those of one large class are added up.
    """
    large: dict[tuple[int, int], tuple[slice, Tensor]] = {}
    for tile in pair.tiles:
        apart = _distances(data, tile)
        for part, rows, others, classes in (
            (apart, tile.left, tile.right, pair.left),
            (apart.T, tile.right, tile.left, pair.right),
        ):
            means = _sum_by_class(part, data, rows, classes) / data.sizes[classes.start : classes.stop, None]
            if len(classes) > 1:
                nearest = _lower(nearest, others, means)
            else:
                key = (classes.start, others.start)
                large[key] = (others, large[key][1] + means if key in large else means)
    for others, means in large.values():
        nearest = _lower(nearest, others, means)
    return nearest


def _lower(nearest: Float[Tensor, " n"], rows: slice, means: Float[Tensor, "k b"]) -> Float[Tensor, " n"]:
    nearest[rows] = torch.minimum(nearest[rows].clone(), means.amin(0))  # a clone, which the gradient may need
    return nearest


def _sum_by_class(apart: Float[Tensor, "a b"], data: _SortedRows, rows: slice, classes: range) -> Float[Tensor, "k b"]:
    """In float64."""
    if len(classes) == 1:
        return apart.sum(0, keepdim=True).double()
    sums = apart.new_zeros((len(classes), apart.shape[1]), dtype=torch.float64)
    return sums.index_add(0, data.codes[rows] - classes.start, apart.double())
