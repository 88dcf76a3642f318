"""Mean distances of every row to its own class and to the nearest other one, on a GPU: what class_distances gives, from
one Triton kernel that keeps every distance in registers.

Rows are sorted by class. Distances within a class are taken about a point of that class, distances between classes
about one of all. Each pair of rows is taken twice, once from either side, which is twice the products of
class_distances: a row's sums then never leave its program, and nothing is added atomically.
"""

import math
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry._core.arguments import one_of
from clip_geometry.geometry._kernels.fused_operands import FORMS, LEAST, Form, Operands, class_centres, middle, operands
from clip_geometry.registry import InputError

if TYPE_CHECKING:
    Products: TypeAlias = Literal["fp16x3", "tf32x3", "ieee", "tf32", "fp16", "bf16"]
else:  # an unknown one is our sentence, not a type checker's
    Products = Any

DEFAULT = "fp16x3"
WORTH_IT = 8192  # rows from which on a GPU takes the kernel: below, compiling it takes longer than all else
SHARE = 0.1  # of ‖x‖² + ‖y‖² below which a squared distance is taken from differences, as distances.CANCELLED


class Tiles(NamedTuple):
    """Rows, columns and dimensions of a block of products; warps of a program and stages of its loads."""

    rows: int
    columns: int
    dimensions: int
    warps: int
    stages: int


def fused_is_possible(rows: Float[Tensor, "n d"], products: Products | None = None) -> bool:
    """Whether mean distances of these rows are taken by the kernel: float32 or less, no gradient, many, on a GPU.

    products: asked for by name they are taken however few rows there are, and an InputError says why they cannot be.
    """
    single = rows.dtype != torch.float64 and not rows.requires_grad
    if products is None:
        return single and rows.is_cuda and len(rows) >= WORTH_IT and _kernel_runs(rows.device)
    products = one_of(products, "products", FORMS)
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
    if not _interpreted() and not (nvidia and torch.cuda.get_device_capability(device) >= (8, 0)):
        return False
    return _kernel() is not None


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def _kernel() -> Any:
    """Triton is imported here and nowhere else; None where it is not installed."""
    try:
        from clip_geometry.geometry._kernels.distance_sums import distance_sums
    except ImportError:
        return None
    return distance_sums


def fused_mean_distances(
    rows: Float[Tensor, "n d"],
    codes: Int[Tensor, " n"],
    bounds: list[int],
    *,
    products: Products | None = None,
    tiles: Tiles | None = None,
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Sum of the distances of each row to those of its own class, and mean distance to the nearest other class.

    rows: float32, with entries up to 1; codes: ascending from 0, class c in the rows bounds[c] … bounds[c + 1] − 1.
    products: "fp16x3" (the default), "tf32x3" and "ieee" (without tensor cores) have the error of float32 ones;
    "tf32" and "fp16" round the entries of the rows to 11 bits, "bf16" to 8. Where products cancel differences of the
    rows themselves are taken, element by element: right, and slow where it is so for a large share of the blocks
    (copies, rows more than 128 times as far out as the median one). A distance is float32, sums are float64.
    Memory: three copies of the rows, and the same for 65 536 of them in float64.
    """
    form = FORMS[products or DEFAULT]
    tiles = tiles or _tiles(form)
    block = math.lcm(tiles.rows, tiles.columns)
    shape = _up(len(rows), block), _up(rows.shape[1], tiles.dimensions)
    exact = torch.nn.functional.pad(rows, (0, shape[1] - rows.shape[1], 0, shape[0] - len(rows))).contiguous()
    # numpy, in which Triton interprets a kernel, has no bfloat16
    dtype = torch.float32 if _interpreted() and form.dtype == torch.bfloat16 else None
    centres = class_centres(rows, bounds)

    def sums(within: bool) -> Float[Tensor, " n"]:
        about, which = (centres, codes) if within else (middle(centres)[None], torch.zeros_like(codes))
        given = operands(rows, about, which, form, shape, dtype=dtype)
        spans = _spans(codes, bounds, tiles, within=within)
        out = _launch(given, exact, codes, bounds, spans, form, tiles, within=within)
        return (out / given.scale.double())[: len(rows)]

    return sums(within=True), sums(within=False)


def _tiles(form: Form) -> Tiles:
    """For Hopper, in the shared memory of every GPU from Ampere on (99 KB); not measured on a GPU yet, which
    benchmarks/silhouette_gpu.py --tune does."""
    if _interpreted():
        return Tiles(32, 32, 16, 4, 1)
    return Tiles(128, 128, 32 if form.split or form.dtype == torch.float32 else 64, 8, 3)


def lift_of(d: int) -> float:
    """The power of two that differences are multiplied with: d of them are up to 2, and their float32 squares, whose
    sum is up to 4 d times its square, stay in range, the smallest as well."""
    return 2.0 ** ((125 - math.ceil(math.log2(d))) // 2)


def _up(count: int, block: int) -> int:
    return math.ceil(count / block) * block


def _spans(codes: Int[Tensor, " n"], bounds: list[int], tiles: Tiles, *, within: bool) -> Int[Tensor, "t 4"]:
    """Columns that each tile of rows walks through, and those among them that it leaves out.

    Within classes, the blocks that hold its classes, none left out. Between them all columns, but a tile of one class
    leaves out the blocks that hold nothing but this class.
    """
    edges = torch.tensor(bounds, device=codes.device)
    firsts = torch.arange(0, len(codes), tiles.rows, device=codes.device)
    first, last = codes[firsts], codes[(firsts + tiles.rows - 1).clamp(max=len(codes) - 1)]
    start, stop = edges[first], edges[last + 1]
    if within:
        down, up = start // tiles.columns * tiles.columns, -(-stop // tiles.columns) * tiles.columns
        return torch.stack([down, up, down, down], dim=1).int()
    out, out_end = -(-start // tiles.columns) * tiles.columns, stop // tiles.columns * tiles.columns
    out_end = torch.where(first == last, torch.maximum(out, out_end), out)
    every = torch.full_like(start, _up(len(codes), tiles.columns))
    return torch.stack([torch.zeros_like(start), every, out, out_end], dim=1).int()


def _launch(
    given: Operands,
    exact: Float[Tensor, "m e"],
    codes: Int[Tensor, " n"],
    bounds: list[int],
    spans: Int[Tensor, "t 4"],
    form: Form,
    tiles: Tiles,
    *,
    within: bool,
) -> Float[Tensor, " m"]:
    (padded, d), k = exact.shape, len(bounds) - 1
    labels = torch.nn.functional.pad(codes.int(), (0, padded - len(codes)), value=k)
    edges = torch.tensor(bounds, dtype=torch.int32, device=exact.device)
    lift = lift_of(d)
    units = given.scale / lift
    out = exact.new_zeros(padded, dtype=torch.float64)
    with torch.cuda.device_of(exact):
        _kernel()[(len(spans),)](
            *(given.high, given.low, given.norms, exact, units, labels, edges, spans, out),
            *(k, SHARE, LEAST * d, d),
            BLOCK_M=tiles.rows,
            BLOCK_N=tiles.columns,
            BLOCK_K=tiles.dimensions,
            SPLIT=form.split,
            WITHIN=within,
            PRECISION=form.precision,
            LIFT=lift,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
            enable_fp_fusion=True,  # Triton's default changes with its version
        )
    return out
