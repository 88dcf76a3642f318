"""Squared Euclidean distances between two sets of rows, from products, or from differences where products cancel."""

import math
import os

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clip_geometry.rows.matrix import Matrix, blocks, in_one_piece

# Below this share of ‖x‖² + ‖y‖², a squared distance computed from a product has lost too many digits: four of sixteen
# in float64, and one of seven in float32, whose sums lose most where rows are nearly equal.
CANCELLED = {torch.float64: 1e-4, torch.float32: 0.1}
# Above this share of cancelled entries, computing the whole block more precisely is faster than differences of these
# entries alone: by differences in float64, and by float64 products first in float32.
DENSE = {torch.float64: 0.25, torch.float32: 0.01}
SAME_DIRECTION = 1e-13  # unit rows with the same direction differ in their last digits


def distances(
    x: Float[Tensor, "a d"],
    y: Float[Tensor, "b d"],
    *,
    centre: Float[Tensor, " d"] | None = None,
) -> Float[Tensor, "a b"]:
    """Return ‖x_i − y_j‖ in float64, from `squared_distances`. The gradient is 0 where rows coincide."""
    squares = squared_distances(x, y, centre=centre)
    if not squares.requires_grad:
        return squares.sqrt_()
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1).sqrt(), 0)


def squared_distances(
    x: Float[Tensor, "a d"],
    y: Float[Tensor, "b d"],
    *,
    centre: Float[Tensor, " d"] | None = None,
    single: bool = False,
) -> Float[Tensor, "a b"]:
    """Return ‖x_i − y_j‖² in float64, computed from products in the precision of x and y, float64 or float32.

    Float32 products are precise to six digits for each entry, and to seven on average over many entries; entries that
    cancel are computed exactly. Float32 rows should have entries of order 1. `centre` is a point near the rows about
    which the products are computed, so that few of them cancel. `single` uses float32 products for float64 rows as
    well.
    """
    left, right = (x, y) if centre is None else (x - centre, y - centre)
    if single:
        left, right = left.float(), right.float()
    x_norms, y_norms = left.square().sum(1)[:, None], right.square().sum(1)
    squares = torch.addmm(x_norms, left, right.T, alpha=-2).add_(y_norms)
    x_norms, y_norms = x_norms.detach(), y_norms.detach()
    limits = torch.finfo(squares.dtype)
    share = CANCELLED[squares.dtype]
    least = limits.tiny / limits.eps  # below this, a product loses digits because its terms underflow
    if squares.detach().amin() >= share * float(x_norms.amax() + y_norms.amax()) + least:
        return squares.double()  # no entry cancels
    cancelled = (squares.detach() - share * x_norms).sub_(share * y_norms) < least
    count = int(cancelled.count_nonzero())
    if count > DENSE[squares.dtype] * squares.numel():
        if squares.dtype == torch.float64:
            return torch.cdist(x.double(), y.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
        return squared_distances(x.double(), y.double(), centre=centre)
    squares = squares.double()
    if count == 0:
        return squares
    i, j = cancelled.nonzero(as_tuple=True)
    return squares.index_put((i, j), squared_distances_of_pairs(x.double(), y.double(), i, j))


def squared_distances_of_pairs(
    x: Float[Matrix, "n d"], y: Float[Matrix, "m d"], i: Int[Tensor, " p"], j: Int[Tensor, " p"]
) -> Float[Tensor, " p"]:
    """Return ‖x_i − y_j‖² of the pairs (i, j) from float64 differences, which are exact for near rows."""
    step = max(1, entries_at_a_time(x.device) // x.shape[1])
    # a single allocation; thousands of small ones would fragment the heap
    squares = torch.empty(len(i), dtype=torch.float64, device=x.device)
    for start in range(0, len(i), step):
        pairs = slice(start, start + step)
        squares[pairs] = (x[i[pairs]].double() - y[j[pairs]].double()).square().sum(1)
    return squares


def entries_at_a_time(device: torch.device) -> int:
    """Return the entries per block of differences: 2 MB of float64, to fit the caches of a CPU, or 128 MB on a GPU."""
    return 2**24 if device.type == "cuda" else 2**18


def single_is_exact(device: torch.device) -> bool:
    """Return whether float32 products are computed in float32: no autocast, and no replacement by TF32 or bfloat16."""
    if any(os.environ.get(f"{name}_DEFAULT_FPMATH_MODE", "STRICT").upper() != "STRICT" for name in ("ONEDNN", "DNNL")):
        return False
    try:
        return torch.get_float32_matmul_precision() == "highest" and not torch.is_autocast_enabled(device.type)
    except RuntimeError:  # raised if the precision was set per backend by the newer interface; then it is unknown
        return False


def near_one(largest: float) -> float:
    """Return the power of two that brings a number near 1, within the float32 range. Scaling by it changes no digit."""
    return 2.0 ** -min(max(math.frexp(largest)[1], -126), 126)


@torch.no_grad()
def distinct_rows(x: Float[Matrix, "n d"], *, tolerance: float = 0.0) -> Bool[Tensor, " n"]:
    """Mark one row of each group of rows within distance `tolerance` of each other, and all rows outside groups.

    Distances are Euclidean. Rows that are near have near projections on any line, so only runs in the order of the
    projections are compared. `tolerance` is 0, or so small that groups do not touch.
    """
    keys, slack = _projections(x, tolerance)
    kept = torch.ones(len(x), dtype=torch.bool, device=x.device)
    order = keys.argsort(stable=True)
    step = 1
    while step < len(order):
        i, j = order[:-step], order[step:]
        close = keys[j] - keys[i] <= slack[i]
        if not close.any():  # then rows farther apart in the order are not close either
            break
        i, j = i[close], j[close]
        copies = j[squared_distances_of_pairs(x, x, i, j) <= tolerance**2]
        kept[copies] = False
        order = order[kept[order]]
        step = 1 if len(copies) > 0 else step + 1
    return kept


def _projections(x: Float[Matrix, "n d"], tolerance: float) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the products with a fixed vector, and how far apart those of equal rows can be, including rounding."""
    d = x.shape[1]
    line = torch.randn(d, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(x.device)
    keys = in_one_piece((block @ line for block in blocks(x)), len(x))
    lengths = in_one_piece((block.norm(dim=1) for block in blocks(x)), len(x))
    rounding = 2 * (d + 4) * torch.finfo(torch.float64).eps * lengths
    return keys, (tolerance + rounding) * line.norm()
