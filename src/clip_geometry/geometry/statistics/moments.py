"""Moments of the rows up to the fourth, which can be merged across blocks, folders and processes."""

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import near_one, single_is_exact
from clip_geometry.geometry.statistics.statistic import BlockedRows, Statistic
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import BLOCK, Matrix, Rows, as_matrix, as_rows, require_spread
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.rows.threads import in_threads

PART = 128  # rows whose products are summed in float32; with 256, columns of two values add up errors beyond 1e-6
WIDE = 256  # fewest columns for which float32 products, and splitting them into two halves, are faster
RANGE = 20  # binary orders around 1 within which sums of fourth powers stay far from the ends of the float32 range
STREAMED_BLOCK = 8192  # rows per block; merging blocks then costs little compared with their products
THREADED = 4096  # rows of a block that share a mean; fixed, so that products are rounded the same on every machine
MOST_BYTES = 2**28  # limit for the moments of all blocks
GROUPED_BLOCK = 32768  # rows per block if each block is split into groups


def block_sums(block: Float[Tensor, "b d"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mean, Σ c cᵀ, Σ‖c‖² c and Σ‖c‖⁴ of the rows w of a block in float64, where c = w − mean.

    The products are computed about the mean rounded to the precision of the rows, so that differences with few digits
    keep few digits and their sums are exact far from the origin. The rounding of the mean is corrected in float64.
    """
    mean = functools.reduce(operator.add, (part.double().sum(0) for part in block.split(PART))) / len(block)
    scale = _scale(block)
    centre = mean.to(block.dtype)
    centre = centre if block.dtype == torch.float64 else centre.float()
    products = _Products(block)
    cubes, fourths = torch.zeros_like(mean), mean.new_zeros(())
    for part in block.split(PART):
        c = (part - centre).float().mul_(scale)
        squares = c.square().sum(1)
        products.add(c)
        cubes += squares @ c
        fourths += squares.double().square().sum()
    m2, t, q = products.sum() / scale**2, cubes / scale**3, fourths / scale**4
    n = len(block)
    r = mean - centre.double()  # from the center to the mean, so Σ c = n r
    square, trace, m2_r = r @ r, m2.trace(), m2 @ r
    t_about_mean = t - r * trace - 2 * m2_r + 2 * n * square * r
    q_about_mean = q - 4 * (r @ t) + 2 * square * trace + 4 * (r @ m2_r) - 3 * n * square**2
    return mean, m2 - n * torch.outer(r, r), t_about_mean, q_about_mean


def _scale(block: Float[Tensor, "b d"]) -> float:
    """Return a power of two that brings rows near 1 if their squares may leave the float32 range, otherwise 1."""
    smallest, largest = (float(bound) for bound in block.aminmax())
    scale = near_one(max(-smallest, largest))
    return 1.0 if 2.0**-RANGE <= scale <= 2.0**RANGE else scale


class _Products:
    """Accumulates Σ cᵀc over blocks of rows c.

    The columns are split into two halves, so that the lower left quarter, which follows by symmetry, is not computed.
    oneDNN is used where it is available, because it chooses its kernels for the processor.
    """

    def __init__(self, block: Float[Tensor, "b d"]):
        d = block.shape[1]
        self.half = d // 2
        self.fast = torch.backends.mkldnn.is_available() and not block.is_cuda
        self.upper = block.new_zeros((self.half, d), dtype=torch.float64)
        self.lower = block.new_zeros((d - self.half, d - self.half), dtype=torch.float64)

    def add(self, c: Float[Tensor, "b d"]) -> None:
        if len(c) < PART:  # pad to one shape, because oneDNN keeps a kernel and its memory for each shape
            c = F.pad(c, (0, 0, 0, PART - len(c)))
        columns = c.T.contiguous()
        left, right = columns[: self.half], columns[self.half :]
        self.upper += self._product(left, columns)
        self.lower += self._product(right, right)

    def _product(self, a: Float[Tensor, "e b"], b: Float[Tensor, "f b"]) -> Float[Tensor, "e f"]:
        return F.linear(a.to_mkldnn(), b.to_mkldnn()).to_dense() if self.fast else a @ b.T

    def sum(self) -> Float[Tensor, "d d"]:
        return torch.cat([self.upper, torch.cat([self.upper[:, self.half :].T, self.lower], dim=1)])


@dataclass(frozen=True, eq=False)
class Moments(Statistic):
    """Sums over n rows in d dimensions from which all measures of the variance, such as `isoscore`, are computed.

    `Moments.of` computes them from rows. `+` merges the moments of two sets of rows, such as blocks of a file or the
    rows of two processes. In the definitions below, c = w − mean for a row w, and Σ runs over all rows. All are float64
    and differentiable in the rows. T is needed only to merge Q.

    Args:
        n: Number of rows.
        mean: Mean of the rows, (d,).
        M2: Σ c cᵀ, the scatter matrix, (d, d).
        T: Σ ‖c‖² c, (d,).
        Q: Σ ‖c‖⁴, a 0-d tensor, needed for the unbiased IsoScore.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> both = cg.Moments.of(x[:50]) + cg.Moments.of(x[50:])
        >>> both.n, both.d
        (100, 8)
        >>> round(float(cg.geometry.isoscore(both)), 3)
        0.894
    """

    n: int
    mean: Float[Tensor, " d"]
    M2: Float[Tensor, "d d"]
    T: Float[Tensor, " d"]
    Q: Float[Tensor, ""]

    @classmethod
    def of(cls, x: "Rows | Moments") -> "Moments":
        """Compute the moments of rows.

        Rows are read in two passes. StreamedRows are read in one pass, with each block about its own mean, and use
        float32 products if d ≥ 256 and the rows are stored as float16 or float32 (precise to 1e-6 of each norm).

        Args:
            x: Rows, (n, d), n ≥ 1; or `Moments`, which are returned unchanged.

        Returns:
            The moments.

        Raises:
            InputError: The rows are not usable, or the fourth powers of the rows about their mean exceed float64.
        """
        return x if isinstance(x, Moments) else _finite(_moments_of_rows(as_matrix(x, least=1)))

    @classmethod
    def without_each(cls, rows: BlockedRows) -> "Iterator[Moments] | None":
        """Yield the moments without each block, from those of the blocks; return None if these exceed MOST_BYTES."""
        return None if cls.too_large(rows.blocks, rows.rows.shape[1]) else iter(rows.shared(_without_each))

    @staticmethod
    def too_large(blocks: int, d: int) -> bool:
        """Return whether the moments of the rows without each block need more than MOST_BYTES."""
        return 8 * (2 * blocks + 2) * d**2 > MOST_BYTES

    @property
    def d(self) -> int:
        """Dimension of the rows."""
        return len(self.mean)

    @property
    def covariance(self) -> Float[Tensor, "d d"]:
        """Covariance of the rows, M2/(n − 1)."""
        return self.M2 / (self.n - 1)

    def __add__(self, other: "Moments") -> "Moments":
        """Return the moments of both sets of rows together, by Chan's formula and its analogs for T and Q.

        Raises InputError if fourth powers about the common mean exceed float64.
        """
        return _finite(self.merged(other)) if isinstance(other, Moments) else NotImplemented

    def merged(self, other: "Moments", *, in_place: bool = False) -> "Moments":
        """Return the sum of both moments. It may contain NaN or infinity beyond M2; use it if only M2 is needed.

        Values are not finite if the rows or their fourth powers are not. With `in_place`, M2 is updated in place,
        because new matrices for each of many blocks would fragment the heap.
        """
        if self.d != other.d:
            raise InputError(f"moments of dimension {self.d} and {other.d} cannot be merged; expected one dimension")
        n = self.n + other.n
        mean = self.mean + (other.mean - self.mean) * (other.n / n)
        t, q = self._higher_about(mean)
        other_t, other_q = other._higher_about(mean)
        shift, other_shift = self.mean - mean, other.mean - mean
        m2 = self.M2 if in_place else self.M2.clone()
        m2 = m2.addr_(shift, shift, alpha=self.n).add_(other.M2).addr_(other_shift, other_shift, alpha=other.n)
        return Moments(n, mean, m2, t + other_t, q + other_q)

    def _absorb(self, other: "Moments") -> "Moments":
        return _finite(self.merged(other, in_place=True))

    def _higher_about(self, mean: Float[Tensor, " d"]) -> tuple[Tensor, Tensor]:
        """Return T = Σ ‖c‖² c and Q = Σ ‖c‖⁴ about another mean: c becomes c + δ, δ = old − new mean, and Σ c = 0."""
        shift = self.mean - mean
        square, trace, m2_shift = shift @ shift, self.M2.trace(), self.M2 @ shift
        t = self.T + 2 * m2_shift + shift * (trace + self.n * square)
        q = self.Q + 4 * (shift @ m2_shift) + self.n * square**2 + 4 * (self.T @ shift) + 2 * square * trace
        return t, q

    def all_reduce(self, group: Any = None) -> "Moments":
        """Return the moments of the rows of all processes of a torch.distributed group, the same in each process.

        Gradients flow back to every process and are those of the sum of the losses of all processes.
        DistributedDataParallel, which averages gradients, thus ends with the gradient of one loss over all rows.

        Args:
            group: The process group; None for the default group.

        Returns:
            The merged moments.
        """
        sums = _Total.apply(torch.cat([self.n * self.mean, self.mean.new_tensor([self.n])]), group)
        n = round(float(sums[-1].detach()))
        mean = sums[:-1] / n
        shift = self.mean - mean
        m2 = self.M2.addr(shift, shift, alpha=self.n)
        t, q = self._higher_about(mean)
        merged = _Total.apply(torch.cat([m2.flatten(), t, q[None]]), group)
        return Moments(n, mean, merged[: self.d**2].view(self.d, self.d), merged[self.d**2 : -1], merged[-1])


def _without_each(rows: BlockedRows) -> list[Moments]:
    """Return the moments without each block: the sum of the blocks before it and of the blocks after it."""
    present, codes = rows.block_of.unique(return_inverse=True)
    if rows.streamed:  # in one pass
        parts = moments_of_groups(rows.rows, codes, len(present))
    else:
        parts = [Moments.of(rows.rows[rows.block_of == block]) for block in present]
    after = [*accumulate(reversed(parts), Moments.__add__)]  # sums of each part and all later ones, the last part first
    total = after.pop()
    before = None
    moments = [total] * rows.blocks  # the result for an empty block
    for number, part in zip(present.tolist(), parts, strict=True):
        rest = _sum(before, after.pop() if after else None)
        if number >= 0 and rest is not None:
            moments[number] = rest
        before = _sum(before, part)
    return moments


def _sum(a: Moments | None, b: Moments | None) -> Moments | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _finite(moments: Moments) -> Moments:
    if not (moments.Q.isfinite() and moments.T.isfinite().all()):
        raise InputError("the fourth powers of the rows of x about their mean exceed float64; rescale the rows")
    return moments


class _Total(torch.autograd.Function):
    """The sum of values, and of gradients, over all processes (that of torch.distributed is not differentiable)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = values.clone()
        torch.distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous().clone()
        torch.distributed.all_reduce(total, group=ctx.group)
        return total, None


def _moments_of_rows(x: Float[Matrix, "n d"]) -> Moments:
    """Return the moments of rows; T and Q may be infinite."""
    if isinstance(x, StreamedRows):
        return _moments_of_streamed(x)
    return functools.reduce(Moments.merged, map(_by_float64_products, x.split(BLOCK)))


def _moments_of_streamed(x: StreamedRows) -> Moments:
    """Return the moments of streamed rows, computed in one pass and cached."""
    if "moments" not in x.known:
        of_block = _moments_of_block(x)

        def accumulate(merged_blocks: Moments | None, block: Tensor, along: Tensor | None) -> Moments:
            return of_block(block) if merged_blocks is None else merged_blocks._absorb(of_block(block))

        x.known["moments"] = x.aggregate(lambda: None, accumulate, operator.add, STREAMED_BLOCK)
    return x.known["moments"]


def moments_of_groups(x: StreamedRows, codes: Int[Tensor, " n"], k: int) -> list[Moments]:
    """Return the moments of the rows of each code 0..k − 1, in one pass; every code must occur.

    This also stores the moments of all rows.
    """
    of_block = _moments_of_block(x)

    # holds the rows of one code; reused, since memory of many different sizes would not be returned to the system
    buffer: Tensor | None = None

    def accumulate(by_code: dict[int, Moments], block: Tensor, block_codes: Tensor) -> dict[int, Moments]:
        nonlocal buffer
        buffer = torch.empty_like(block) if buffer is None or len(buffer) < len(block) else buffer
        for code in block_codes.unique().tolist():
            rows = (block_codes == code).nonzero()[:, 0]
            group = torch.index_select(block, 0, rows, out=buffer[: len(rows)])
            by_code = _merged(by_code, {code: of_block(group)})
        return by_code

    by_code = x.aggregate(dict, accumulate, _merged, GROUPED_BLOCK, codes)
    moments = [by_code[code] for code in range(k)]
    x.known["moments"] = functools.reduce(operator.add, moments)
    return moments


def _merged(a: dict[int, Moments], b: dict[int, Moments]) -> dict[int, Moments]:
    """Merge the moments of b into a."""
    for code, moments in b.items():
        a[code] = a[code]._absorb(moments) if code in a else moments
    return a


def _moments_of_block(x: StreamedRows) -> Callable[[Tensor], Moments]:
    """Return the function that computes the moments of a block, in the precision that suits the rows."""
    use_float32 = x.stored != torch.float64 and x.shape[1] >= WIDE and single_is_exact(x.device)
    return _by_float32_products if use_float32 else _by_float64_products


def _by_float32_products(block: Float[Tensor, "b d"]) -> Moments:
    parts = in_threads(lambda part: Moments(len(part), *block_sums(part)), block, THREADED)
    return functools.reduce(Moments._absorb, parts)


def _by_float64_products(block: Float[Tensor, "b d"]) -> Moments:
    """Return n, the mean, and the second to fourth centered moments of a block."""
    centered = block.double() - block[0].double()  # exactly 0 if all rows are equal
    offset = centered.mean(0)
    centered = centered - offset
    squares = centered.square().sum(1)
    mean = block[0].double() + offset
    return Moments(len(block), mean, centered.T @ centered, squares @ centered, squares.square().sum())


def as_moments(x: Rows | Moments, *, least: int = 2, least_d: int = 1) -> Moments:
    """Return the moments of rows, or moments unchanged, after checking sizes and spread.

    Raises InputError for fewer than `least` rows, for fewer than `least_d` columns, and if all rows are equal.
    """
    if isinstance(x, Moments) and (x.n < least or x.d < least_d):
        raise InputError(
            f"the moments are those of {x.n} rows with {x.d} columns; expected at least {least} rows and {least_d} "
            "columns"
        )
    if isinstance(x, StreamedRows):  # float32 products of equal rows may leave a remainder
        require_spread(as_matrix(x, least=least, least_d=least_d))
    moments = x if isinstance(x, Moments) else _moments_of_rows(as_matrix(x, least=least, least_d=least_d))
    trace = moments.M2.trace()
    if not trace.isfinite():
        raise InputError("the moments are not finite; leave out rows with NaN or infinity, or rescale them")
    if trace == 0:  # exact for equal rows, because their mean is exact
        raise InputError(f"all {moments.n} rows of x are equal, so the measure is undefined; expected rows that differ")
    return moments


def scatter(x: Rows | Moments, *, least_d: int = 1) -> Float[Tensor, "d d"]:
    """Return M2 only.

    Wide float32 rows without a gradient use float32 products, which are precise to 1e-7 of the norm of M2 (1e-6 if a
    column has few different values, whose rounding errors add up). Raises the InputErrors of `as_moments`.
    """
    if isinstance(x, Moments | StreamedRows):
        return as_moments(x, least_d=least_d).M2
    x = as_rows(x, least_d=least_d)
    require_spread(x)
    if x.dtype != torch.float32 or x.shape[1] < WIDE or x.requires_grad or not single_is_exact(x.device):
        return _moments_of_rows(x).M2
    return _by_float32_products(x).M2
