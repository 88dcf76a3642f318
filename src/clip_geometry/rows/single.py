"""Sums of products of a block of rows in float32, parts of it added up in float64."""

import functools
import math
import operator

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

PART = 128  # rows whose products are summed in float32: of columns of two values 256 add up errors beyond 1e-6
WIDE = 256  # columns from which on float32 is faster, and two halves are
RANGE = 20  # binary orders from 1 within which sums of fourth powers stay far from the ends of float32


def block_sums(block: Float[Tensor, "b d"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mean, Σ c cᵀ, Σ‖c‖² c and Σ‖c‖⁴ of the rows w of a block, c = w − mean, in float64.

    The products are taken about the mean rounded to the precision of the rows, so that differences of few digits keep
    few: far from the origin their sums are exact. What the rounding took is put right in float64.
    """
    mean = functools.reduce(operator.add, (part.double().sum(0) for part in block.split(PART))) / len(block)
    centre, scale = mean.to(block.dtype), _scale(block)
    centre = centre if block.dtype == torch.float64 else centre.float()
    products, cubes, fourths = _Products(block.shape[1]), torch.zeros_like(mean), mean.new_zeros(())
    for part in block.split(PART):
        c = (part - centre).float().mul_(scale)
        squares = c.square().sum(1)
        products.add(c)
        cubes += squares @ c
        fourths += squares.double().square().sum()
    m2, t, q = products.sum() / scale**2, cubes / scale**3, fourths / scale**4
    n, r = len(block), mean - centre.double()  # Σ c = n r, r from the centre to the mean
    square, trace, along = r @ r, m2.trace(), m2 @ r
    moved_t = t - r * trace - 2 * along + 2 * n * square * r
    moved_q = q - 4 * (r @ t) + 2 * square * trace + 4 * (r @ along) - 3 * n * square**2
    return mean, m2 - n * torch.outer(r, r), moved_t, moved_q


def _scale(block: Float[Tensor, "b d"]) -> float:
    """The power of two, which changes no digit, that brings rows near 1 whose squares may leave float32."""
    least, most = (float(bound) for bound in block.aminmax())
    scale = near_one(max(-least, most))
    return 1.0 if 2.0**-RANGE <= scale <= 2.0**RANGE else scale


def near_one(largest: float) -> float:
    """The power of two, which changes no digit, that brings a number near 1, as far as float32 reaches."""
    return 2.0 ** -min(max(math.frexp(largest)[1], -126), 126)


class _Products:
    """Σ cᵀc over parts. By oneDNN, whose kernels are chosen for the processor, in two halves of the columns:
    what lies below the diagonal is not computed but for what a square half holds of it."""

    def __init__(self, d: int):
        self.half = d // 2
        self.fast = torch.backends.mkldnn.is_available()
        self.upper = torch.zeros((self.half, d), dtype=torch.float64)
        self.lower = torch.zeros((d - self.half, d - self.half), dtype=torch.float64)

    def add(self, c: Float[Tensor, "b d"]) -> None:
        if len(c) < PART:  # always of one shape: oneDNN keeps a kernel and its memory for each
            c = F.pad(c, (0, 0, 0, PART - len(c)))
        columns = c.T.contiguous()
        left, right = columns[: self.half], columns[self.half :]
        self.upper += self._product(left, columns)
        self.lower += self._product(right, right)

    def _product(self, a: Float[Tensor, "e b"], b: Float[Tensor, "f b"]) -> Float[Tensor, "e f"]:
        return F.linear(a.to_mkldnn(), b.to_mkldnn()).to_dense() if self.fast else a @ b.T

    def sum(self) -> Float[Tensor, "d d"]:
        return torch.cat([self.upper, torch.cat([self.upper[:, self.half :].T, self.lower], dim=1)])


def gram(x: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """xᵀx with the products of two halves of the columns taken once: three quarters of the work, and less below."""
    d = x.shape[1]
    if d < WIDE:
        return x.T @ x
    left, right = x[:, : d // 2], x[:, d // 2 :]
    mixed = left.T @ right
    return torch.cat([torch.cat([gram(left), mixed], dim=1), torch.cat([mixed.T, gram(right)], dim=1)])
