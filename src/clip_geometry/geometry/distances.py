"""Squared Euclidean distances between two sets of rows: from products, and where those cancel from differences."""

import os

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distinct import squared_distances_of_pairs

# Below this share of ‖x‖² + ‖y‖² a squared distance taken from a product has lost too many of its digits: in float64
# four of sixteen; in float32, whose sums lose most where rows are nearly equal, one of seven.
CANCELLED = {torch.float64: 1e-4, torch.float32: 0.1}
# From this share of cancelled entries on, the next better way for all of them is faster than differences of these:
# differences of a whole block; for float32 first products in float64.
DENSE = {torch.float64: 0.25, torch.float32: 0.01}
ONEDNN_SLAB = 256  # rows at a time: what one call gives is small enough for the cache, from where it is copied


def squared_distances(
    x: Float[Tensor, "a d"],
    y: Float[Tensor, "b d"],
    *,
    centre: Float[Tensor, " d"] | None = None,
    single: bool = False,
    cancelled: int | None = None,
) -> Float[Tensor, "a b"]:
    """‖x_i − y_j‖² in float64, with products in the precision of x and y: float64, or float32 where that is enough.

    Float32 products keep six digits of each entry, on average over many entries seven; those that cancel are exact
    all the same. They want entries of the order of 1. centre: a point near the rows, about which the products are
    taken, so that few cancel. single: float32 products of float64 rows too. cancelled: how many products cancel, where
    count_cancelled has told it: a GPU is not asked for it here, which would wait for the device; unless it is known,
    all entries are taken from differences there.
    """
    told = cancelled is not None
    if x.is_cuda and not told:
        return _differences(x, y)
    squares, surplus = _products(x, y, centre, single)
    least = _least(squares)
    if cancelled is None:
        cancelled = int((surplus < least).sum()) if surplus.amin() < least else 0
    if cancelled > DENSE[surplus.dtype] * surplus.numel():
        if told or surplus.dtype == torch.float64:  # how many cancel in float64 was not told
            return _differences(x, y)
        return squared_distances(x.double(), y.double(), centre=centre)
    squares = squares.double()
    if cancelled == 0:
        return squares
    i, j = _smallest(surplus, cancelled)
    return squares.index_put((i, j), squared_distances_of_pairs(x.double(), y.double(), i, j))


def count_cancelled(
    x: Float[Tensor, "a d"], y: Float[Tensor, "b d"], centre: Float[Tensor, " d"] | None = None
) -> Int[Tensor, ""]:
    """How many of the products in squared_distances cancel, still on the device."""
    surplus = _products(x, y, centre)[1]
    return (surplus < _least(surplus)).sum()


def _least(values: Tensor) -> float:
    """Below, a product loses digits because its terms leave the range."""
    return torch.finfo(values.dtype).tiny / torch.finfo(values.dtype).eps


def single_is_exact(device: torch.device) -> bool:
    """Whether float32 products are float32 products: not in autocast, nor where TF32 or bfloat16 may replace them."""
    if any(os.environ.get(f"{name}_DEFAULT_FPMATH_MODE", "STRICT").upper() != "STRICT" for name in ("ONEDNN", "DNNL")):
        return False
    try:
        return torch.get_float32_matmul_precision() == "highest" and not torch.is_autocast_enabled(device.type)
    except RuntimeError:  # set per backend, by the newer interface: then we cannot know
        return False


def _products(
    x: Float[Tensor, "a d"], y: Float[Tensor, "b d"], centre: Float[Tensor, " d"] | None, single: bool = False
) -> tuple[Float[Tensor, "a b"], Float[Tensor, "a b"]]:
    """Squared distances, and by how much they exceed the share of the norms below which they are not trusted."""
    if centre is not None:
        x, y = x - centre, y - centre
    if single:
        x, y = x.float(), y.float()
    x_norms, y_norms = x.square().sum(1)[:, None], y.square().sum(1)
    product = _onednn_product if _onednn_is_faster(x, y) else _product
    squares = product(x_norms, x, y).add_(y_norms)
    share = CANCELLED[x.dtype]
    return squares, (squares.detach() - share * x_norms.detach()).sub_(share * y_norms.detach())


def _product(norms: Float[Tensor, "a 1"], x: Float[Tensor, "a d"], y: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
    """‖x_i‖² − 2 ⟨x_i, y_j⟩."""
    return torch.addmm(norms, x, y.T, alpha=-2)


def _onednn_product(
    norms: Float[Tensor, "a 1"], x: Float[Tensor, "a d"], y: Float[Tensor, "b d"]
) -> Float[Tensor, "a b"]:
    """The same by oneDNN, whose kernels for the processor at hand are up to twice as fast as the BLAS of torch."""
    result, columns = x.new_empty(len(x), len(y)), y.to_mkldnn()
    for rows, norm, part in zip(*(tensor.split(ONEDNN_SLAB) for tensor in (x, norms, result)), strict=True):
        torch.add(F.linear(rows.mul(-2).to_mkldnn(), columns).to_dense(), norm, out=part)
    return result


def _onednn_is_faster(x: Float[Tensor, "a d"], y: Float[Tensor, "b d"]) -> bool:
    """For large float32 blocks on a CPU, as small ones lose more by the conversion; it knows no gradient."""
    return (
        x.dtype == torch.float32
        and x.device.type == "cpu"
        and not (x.requires_grad or y.requires_grad)
        and min(len(x), len(y), x.shape[1]) >= ONEDNN_SLAB
        and torch.backends.mkldnn.is_available()
    )


def _smallest(values: Float[Tensor, "a b"], count: int) -> tuple[Int[Tensor, " p"], Int[Tensor, " p"]]:
    """Where the `count` smallest entries are. The count is known, so that a GPU need not be waited for."""
    flat = values.flatten().topk(count, largest=False, sorted=False).indices
    return flat // values.shape[1], flat % values.shape[1]


def _differences(x: Float[Tensor, "a d"], y: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
    return torch.cdist(x.double(), y.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
