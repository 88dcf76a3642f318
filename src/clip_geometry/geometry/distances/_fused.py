"""Mean distances of each row to its own class and to the nearest other class, computed on a GPU by one Triton kernel.

The results are those of `by_class.mean_distances`, but the kernel keeps every distance in registers. Importing this
file imports Triton.

Rows are sorted by class. Distances within a class are computed about a point of that class, distances between classes
about one point for all classes. Each pair of rows is computed twice, once for each of its rows, which takes twice as
many products as `by_class.mean_distances`. In return, the sums for a row never leave its program and need no atomic
additions, so the same input gives the same bits.
"""

import math
import os
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

SHARE = 0.1  # share of ‖x‖² + ‖y‖² below which squared distances use differences, as pairwise.CANCELLED
TYPICAL = 8  # binary exponent of a typical scaled entry: far from both ends of the float16 range
LARGEST = 2.0**15  # larger entries exceed float16; distances to such rows are computed from differences
LEAST = 2.0**-6  # times d: smaller squared distances keep few digits in float16 and also use differences
SAMPLE = 9  # rows per class whose median serves as its center: near most rows, however far away some are
PART = 2**16  # rows prepared per block


class Tiles(NamedTuple):
    """Tile sizes of the kernel: rows, columns and dimensions of a block of products, warps and load stages."""

    rows: int
    columns: int
    dimensions: int
    warps: int
    stages: int


def fused_mean_distances(
    rows: Float[Tensor, "n d"],
    codes: Int[Tensor, " n"],
    bounds: list[int],
    *,
    tiles: Tiles | None = None,
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the summed distance of each row to its own class, and the mean distance to the nearest other class.

    `rows` are float32 with entries up to 1. `codes` ascend from 0, and class c has the rows bounds[c] … bounds[c + 1] −
    1. Each row is multiplied as the sum of two float16 numbers, twice 11 bits, which has the error of float32 products.
    Where products cancel, the kernel uses differences of the rows, element by element. This is exact, but slow if it
    applies to a large share of the blocks (copies, or rows more than 128 times as far out as the median row). Each
    distance is float32; sums are float64. The memory needed is three copies of the rows, plus the same for 65,536 rows
    in float64.
    """
    tiles = tiles or _tiles()
    shape = _up(len(rows), math.lcm(tiles.rows, tiles.columns)), _up(rows.shape[1], tiles.dimensions)
    exact = torch.nn.functional.pad(rows, (0, shape[1] - rows.shape[1], 0, shape[0] - len(rows))).contiguous()
    centres = class_centres(rows, bounds)

    def sums(within: bool) -> Float[Tensor, " n"]:
        origins, origin_of_row = (centres, codes) if within else (middle(centres)[None], torch.zeros_like(codes))
        padded = operands(rows, origins, origin_of_row, shape)
        spans = _spans(codes, bounds, tiles, within=within)
        out = _launch(padded, exact, codes, bounds, spans, tiles, within=within)
        return (out / padded.scale.double())[: len(rows)]

    return sums(within=True), sums(within=False)


class Operands(NamedTuple):
    """The padded operands of the products, and their unit: a distance of 1 between rows is `scale` in that unit."""

    high: Float[Tensor, "m e"]
    low: Float[Tensor, "m e"]  # remainder of `high`
    norms: Float[Tensor, " m"]
    scale: Float[Tensor, " m"]


def operands(
    rows: Float[Tensor, "n d"], centres: Float[Tensor, "c d"], center_of_row: Int[Tensor, " n"], shape: tuple[int, int]
) -> Operands:
    """Prepare the operands from float32 rows, padded with zeros to `shape`, each about its center."""
    d = rows.shape[1]
    spans = [slice(start, min(start + PART, len(rows))) for start in range(0, len(rows), PART)]
    lengths = torch.cat([(rows[span] - centres[center_of_row[span]]).double().norm(dim=1) for span in spans])
    scale = _scales(lengths / d**0.5, center_of_row, len(centres))
    high = rows.new_zeros(shape, dtype=torch.float16)
    low = torch.zeros_like(high)
    norms = rows.new_zeros(shape[0])
    for span in spans:
        scaled = (rows[span] - centres[center_of_row[span]]) * scale[span, None]
        fits = scaled.abs().amax(1) < LARGEST
        scaled = torch.where(fits[:, None], scaled, 0)
        first = scaled.half()
        second = (scaled - first.float()).half()
        high[span, :d], low[span, :d] = first, second
        multiplied = first.double() + second.double()
        # norms of the rounded operands, not of the rows: rounding then moves the rows a little, but nothing cancels
        norms[span] = torch.where(fits, multiplied.square().sum(1).float(), torch.nan)
    return Operands(high, low, norms, torch.cat([scale, scale.new_ones(shape[0] - len(rows))]))


def class_centres(rows: Float[Tensor, "n d"], bounds: list[int]) -> Float[Tensor, "k d"]:
    """Return the coordinate-wise median of some rows of each class.

    Class c has the rows bounds[c] … bounds[c + 1] − 1.
    """
    edges = torch.tensor(bounds, device=rows.device)
    sizes = edges.diff()[:, None]
    sample = edges[:-1, None] + (2 * torch.arange(SAMPLE, device=rows.device) + 1) * sizes // (2 * SAMPLE)
    parts = [rows[chosen.flatten()].view(len(chosen), SAMPLE, -1).median(1).values for chosen in sample.split(1024)]
    return torch.cat(parts)


def middle(centres: Float[Tensor, "k d"]) -> Float[Tensor, " d"]:
    """Return a point near most of the classes."""
    return centres[:: math.ceil(len(centres) / 1024)].median(0).values


def _scales(lengths: Float[Tensor, " n"], center_of_row: Int[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
    """Return for each row the power of two that scales the median length about its center to about 2^TYPICAL, (n,)."""
    sizes = torch.bincount(center_of_row, minlength=k)
    order = lengths.argsort()
    order = order[center_of_row[order].argsort(stable=True)]  # by center, then by length
    medians = lengths[order[sizes.cumsum(0) - sizes + sizes // 2]]
    exponents = torch.frexp(medians).exponent.clamp(min=-90)  # keeps the scales within float32
    return torch.ldexp(torch.ones_like(medians), TYPICAL - exponents).float()[center_of_row]


def _tiles() -> Tiles:
    """Return the tile sizes, chosen for Hopper; they fit the shared memory of every GPU since Ampere (99 KB).

    They have not been tuned on a GPU yet; run benchmarks/silhouette_gpu.py --tune for that.
    """
    if _interpreted():
        return Tiles(32, 32, 16, 4, 1)
    return Tiles(128, 128, 32, 8, 3)


def lift_of(d: int) -> float:
    """Return the power of two by which differences are multiplied so that their squares stay within float32.

    Each of the d differences is at most 2, so the sum of their squares is at most 4 d times the square of the factor.
    The smallest squares stay in range, too.
    """
    return 2.0 ** ((125 - math.ceil(math.log2(d))) // 2)


def _up(count: int, block: int) -> int:
    return math.ceil(count / block) * block


def _spans(codes: Int[Tensor, " n"], bounds: list[int], tiles: Tiles, *, within: bool) -> Int[Tensor, "t 4"]:
    """Return the range of columns that each tile of rows reads, and the range inside it that the tile skips.

    Within classes, a tile reads the blocks that hold its classes and skips none. Between classes it reads all columns,
    but a tile with rows of a single class skips the blocks that hold only rows of this class.
    """
    edges = torch.tensor(bounds, device=codes.device)
    firsts = torch.arange(0, len(codes), tiles.rows, device=codes.device)
    first, last = codes[firsts], codes[(firsts + tiles.rows - 1).clamp(max=len(codes) - 1)]
    start, stop = edges[first], edges[last + 1]
    if within:
        begin = start // tiles.columns * tiles.columns
        end = -(-stop // tiles.columns) * tiles.columns
        return torch.stack([begin, end, begin, begin], dim=1).int()
    skip = -(-start // tiles.columns) * tiles.columns
    skip_end = stop // tiles.columns * tiles.columns
    skip_end = torch.where(first == last, torch.maximum(skip, skip_end), skip)
    end = torch.full_like(start, _up(len(codes), tiles.columns))
    return torch.stack([torch.zeros_like(start), end, skip, skip_end], dim=1).int()


def _launch(
    operands: Operands,
    exact: Float[Tensor, "m e"],
    codes: Int[Tensor, " n"],
    bounds: list[int],
    spans: Int[Tensor, "t 4"],
    tiles: Tiles,
    *,
    within: bool,
) -> Float[Tensor, " m"]:
    """Run the Triton kernel: sum the distances of each row to the rows in its span of columns, as in `_spans`."""
    (padded, d), k = exact.shape, len(bounds) - 1
    labels = torch.nn.functional.pad(codes.int(), (0, padded - len(codes)), value=k)
    edges = torch.tensor(bounds, dtype=torch.int32, device=exact.device)
    lift = lift_of(d)
    units = operands.scale / lift
    out = exact.new_zeros(padded, dtype=torch.float64)
    with torch.cuda.device_of(exact):
        kernel: Any = distance_sums[(len(spans),)]
        kernel(
            *(operands.high, operands.low, operands.norms, exact, units, labels, edges, spans, out),
            *(k, SHARE, LEAST * d, d),
            BLOCK_M=tiles.rows,
            BLOCK_N=tiles.columns,
            BLOCK_K=tiles.dimensions,
            WITHIN=within,
            LIFT=lift,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
            enable_fp_fusion=True,  # Triton's default changes with its version
        )
    return out


# Each program handles BLOCK_M rows and iterates over all rows, sorted by class, BLOCK_N at a time. It computes
# products, squared distances, roots and their sum over the current class, and at the end of a class the mean.
@triton.jit(do_not_specialize=["classes"])
def distance_sums(
    high,  # (n, d) centered and scaled rows
    low,  # (n, d) remainder of `high`
    norms,  # (n,) float32 squared norms of high + low
    exact,  # (n, d) original float32 rows, used for differences
    units,  # (n,) the length 1 / LIFT of `exact` in the unit of `high`
    codes,  # (n,) int32, ascending; padding has the largest code, which is not a class
    bounds,  # (classes + 1,) int32: first row of each class
    spans,  # (n / BLOCK_M, 4) int32: start and stop of the columns, start and stop of those to skip
    out,  # (n,) float64
    classes,
    share,
    least,
    d,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    # whether to sum over the row's own class; otherwise take the smallest mean over another class
    WITHIN: tl.constexpr,
    LIFT: tl.constexpr,
):
    tile = tl.program_id(0)
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    # 32-bit offsets from a 64-bit start save registers and allow matrices beyond 2³¹ entries
    left, left_start = tl.arange(0, BLOCK_M)[:, None] * d, (tile * BLOCK_M).to(tl.int64) * d
    right = tl.arange(0, BLOCK_N)[None, :] * d
    mine = tl.load(codes + rows)
    left_norms = tl.load(norms + rows)[:, None]
    unit = tl.load(units + rows)[:, None]
    start, stop = tl.load(spans + 4 * tile), tl.load(spans + 4 * tile + 1)
    gap, gap_end = tl.load(spans + 4 * tile + 2), tl.load(spans + 4 * tile + 3)
    total = tl.zeros((BLOCK_M,), tl.float64)
    nearest = tl.full((BLOCK_M,), float("inf"), tl.float64)
    inner = tl.arange(0, BLOCK_K)
    for step in range((stop - start - (gap_end - gap)) // BLOCK_N):
        first = start + step * BLOCK_N
        first += tl.where(first >= gap, gap_end - gap, 0)
        columns = first + tl.arange(0, BLOCK_N)
        right_start = first.to(tl.int64) * d
        products = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, d, BLOCK_K):
            at_left, at_right = left + (k + inner)[None, :], right + (k + inner)[:, None]
            x, y = tl.load(high + left_start + at_left), tl.load(high + right_start + at_right)
            # All products of the two parts except low · low. Tensor cores truncate each sum toward 0, so their sums are
            # kept short and accumulated outside (Ootomo & Yokota 2022, doi:10.1177/10943420221090256)
            part = tl.dot(x, tl.load(low + right_start + at_right))
            part = tl.dot(tl.load(low + left_start + at_left), y, part)
            products += tl.dot(x, y, part)
        theirs = tl.load(codes + columns)
        norm_sums = left_norms + tl.load(norms + columns)[None, :]
        squares = norm_sums - 2 * products
        if WITHIN:
            wanted = (mine[:, None] == theirs[None, :]) & (rows[:, None] != columns[None, :])
        else:
            wanted = mine[:, None] != theirs[None, :]
        # the comparison is false for NaN, the norm of rows that exceed float16, so that these use differences
        kept = squares >= share * norm_sums + least
        apart = tl.where(wanted, tl.where(kept, tl.sqrt(tl.where(kept, squares, 0.0)), -1.0), 0.0)
        if tl.max((apart < 0).to(tl.int32)) > 0:  # pyright: ignore[reportOperatorIssue]
            differences = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for k in range(d):
                x, y = tl.load(exact + left_start + k + left), tl.load(exact + right_start + k + right)
                difference = (x - y) * LIFT
                differences += difference * difference
            apart = tl.where(apart < 0, tl.sqrt(differences) * unit, apart)
        if WITHIN:
            total += tl.sum(apart, 1).to(tl.float64)
        else:
            last = tl.minimum(tl.load(codes + first + BLOCK_N - 1), classes - 1)
            for c in range(tl.load(codes + first), last + 1):
                total += tl.sum(tl.where((theirs == c)[None, :], apart, 0.0), 1).to(tl.float64)
                begin, end = tl.load(bounds + c), tl.load(bounds + c + 1)
                if end <= first + BLOCK_N:  # the class is complete
                    mean = total / (end - begin).to(tl.float64)
                    nearest = tl.where(mine == c, nearest, tl.minimum(nearest, mean))
                    total = tl.zeros((BLOCK_M,), tl.float64)
    if WITHIN:
        tl.store(out + rows, total)
    else:
        tl.store(out + rows, nearest)


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"
