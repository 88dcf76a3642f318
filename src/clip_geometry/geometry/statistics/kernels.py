"""Sums of kernels over pairs of rows: exp(−t‖x_i − x_j‖²), and inner products."""

import functools
from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import squared_distances
from clip_geometry.geometry.statistics.statistic import BlockedRows, Statistic
from clip_geometry.geometry.statistics.sums import PAIR
from clip_geometry.rows.matrix import (
    Matrix,
    Rows,
    about,
    as_aligned,
    as_matrix,
    blocks,
    in_one_piece,
    mean_row,
    require_spread,
    total,
)
from clip_geometry.rows.streamed import StreamedRows

BLOCK = 1024  # rows per block
Sums = Float[Tensor, "4"] | list[float]  # the sums over some pairs that `_sums` returns


class KernelSums(Statistic):
    """The mean of exp(−t‖x_i − x_j‖²) over the pairs of rows of one set, each pair once."""

    def __init__(self, x: Rows):
        x = as_matrix(x)
        self._left = self._right = about(x, mean_row(x))

    def log_mean(self, t: float) -> Float[Tensor, ""]:
        """Return the logarithm of the mean."""
        left, right = self._left, self._right
        once = left is right
        sums = []
        for first, block in zip(range(0, len(left), BLOCK), left.split(BLOCK), strict=True):
            for start in range(first if once else 0, len(right), BLOCK):
                sums += _sums(t, block, right[start : start + BLOCK], same=start == first, once=once)
        return _log_mean(sums)

    @classmethod
    def without_each(cls, *sets: BlockedRows) -> Iterator["KernelSums"] | None:
        """Yield the statistic without each block, from the sums over each pair of blocks.

        Both sets lose the same rows.
        """
        if any(blocked.streamed for blocked in sets):
            return None
        middle = torch.stack([mean_row(blocked.rows) for blocked in sets]).mean(0)
        block_of = sets[0].block_of
        once = len(sets) == 1
        present = block_of.unique().tolist()
        groups = [[about(blocked.rows, middle)[block_of == block] for block in present] for blocked in sets]

        @functools.cache
        def sums_of_couples(t: float) -> list[tuple[int, int, Sums]]:
            by_couple = []
            for i, a in enumerate(present):
                for j, b in list(enumerate(present))[i if once else 0 :]:
                    for sums in _sums(t, groups[0][i], groups[-1][j], same=i == j, once=once):
                        by_couple.append((a, b, sums))
            return by_couple

        def log_mean(block: int, t: float) -> Float[Tensor, ""]:
            return _log_mean([sums for a, b, sums in sums_of_couples(t) if block not in (a, b)])

        return (cls.known(log_mean=functools.partial(log_mean, block)) for block in range(sets[0].blocks))


class CrossKernelSums(KernelSums):
    """`KernelSums` over the non-matching pairs of rows of two sets."""

    same_as = KernelSums

    def __init__(self, x: Rows, y: Rows):
        x, y = as_aligned(x, y, ("image", "text"), streams=True)
        middle = (mean_row(x) + mean_row(y)) / 2
        self._left, self._right = about(x, middle), about(y, middle)


def _sums(t: float, x: Float[Tensor, "a d"], y: Float[Tensor, "b d"], *, same: bool, once: bool) -> list[Sums]:
    """Return the sums over the exponents e_p = t‖x_i − y_j‖² of two blocks, or nothing if the blocks have no pairs.

    The sums are their minimum `low`, Σ exp(low − e_p), Σ (1 − exp(low − e_p)), which stays precise where it is small,
    and the number of pairs. With `same`, row i does not pair with row i; with `once`, it does not pair with earlier
    rows either.
    """
    exponents = t * squared_distances(x, y)
    if same:
        pairs = torch.ones_like(exponents, dtype=torch.bool).triu(1)
        exponents = exponents[pairs if once else pairs | pairs.T]
    if not exponents.numel():
        return []
    low = exponents.detach().amin()
    count = low.new_tensor(float(exponents.numel()))
    logs = low - exponents
    exps = logs.exp().sum()
    if exponents.requires_grad or exponents.is_cuda:
        return [torch.stack([low, exps, -logs.expm1().sum(), count])]
    # the difference is at least count / 2, so it does not cancel
    falls = -logs.expm1().sum() if exps > count / 2 else count - exps
    # floats instead of tensors: small live tensors keep glibc from reusing the megabytes freed around them
    return [[float(value) for value in (low, exps, falls, count)]]


def _log_mean(parts: Sequence[Sums]) -> Float[Tensor, ""]:
    """Return the log of the mean of exp(−e_p) over all pairs: −low + log(mean of exp(low − e_p)).

    If that mean is near 1, its logarithm would lose relative precision, so it is computed with log1p from the falls.
    The uniformity of tight rows is then exact, too.
    """
    lows, exps, falls, pairs = torch.stack([torch.as_tensor(part, dtype=torch.float64) for part in parts], dim=1)
    low = lows.amin()
    lag = low - lows
    count = pairs.sum()
    mean = (exps * lag.exp()).sum() / count
    fall = (falls * lag.exp() - pairs * lag.expm1()).sum() / count
    return torch.where(mean > 0.5, torch.log1p(-fall.clamp(max=0.75)), mean.log()) - low


class LinearKernels(Statistic):
    """n(n − 3) times the unbiased HSIC (Song et al. 2012) of the linear kernels of aligned sets.

    HSIC is [tr K̃L̃ + 1ᵀK̃1 1ᵀL̃1/((n − 1)(n − 2)) − 2/(n − 2) 1ᵀK̃L̃1], where K̃ = xxᵀ and L̃ = yyᵀ have zero
    diagonals. The rows are centered and scaled to a mean square length of 1, which does not change the ratios and keeps
    fourth powers in range. Centering makes the row sums of K̃ and L̃ equal to −‖x_i‖² and −‖y_i‖². It does not change
    the result, because every function of one row alone cancels in this U-statistic.

    Attributes:
        n: Number of pairs.
        between: The value for x and y.
        within: The values for x and x, and for y and y.
    """

    def __init__(self, x: Rows, y: Rows):
        x, y = as_aligned(x, y, PAIR, least=4, one_space=False, streams=True)
        self._rows = _standardized(x, PAIR[0]), _standardized(y, PAIR[1])
        self.n = len(x)

    @cached_property
    def between(self) -> Float[Tensor, ""]:
        return _hsic(*self._rows)

    @cached_property
    def within(self) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        x, y = self._rows
        return _hsic(x, x), _hsic(y, y)

    @classmethod
    def without_each(cls, x: BlockedRows, y: BlockedRows) -> Iterator["LinearKernels"] | None:
        """Yield the statistic without each block, by subtracting the products of the block from those of all rows."""
        return None if x.streamed or y.streamed else _without_each(x, y)


def _without_each(x: BlockedRows, y: BlockedRows) -> Iterator[LinearKernels]:
    """Yield the kernels without each block, from the products of all rows minus those of the block."""
    sets = [_standardized(blocked.rows, name)[:] for blocked, name in zip((x, y), PAIR, strict=True)]
    # reduced to at most n columns, with the same inner products
    sets = [rows if len(rows) >= rows.shape[1] else torch.linalg.qr(rows.T, mode="r").R.T for rows in sets]
    couples = ((0, 1), (0, 0), (1, 1))
    products = [sets[i].T @ sets[j] for i, j in couples]
    squares = [rows.square().sum(1) for rows in sets]
    for block in range(x.blocks):
        kept = x.kept(block)
        n = int(kept.sum())
        left_out = [rows[~kept] for rows in sets]
        means = [-rows.sum(0) / n for rows in left_out]  # all rows together have mean 0
        lengths = []  # ‖w − mean‖² without a copy of the rows
        for square, rows, mean in zip(squares, sets, means, strict=True):
            lengths.append((square - 2 * (rows @ mean) + mean @ mean)[kept])
        hsic = []
        for (i, j), product in zip(couples, products, strict=True):
            cross = product - left_out[i].T @ left_out[j] - n * torch.outer(means[i], means[j])
            off_diagonal = cross.square().sum() - lengths[i] @ lengths[j]
            hsic.append(off_diagonal + _length_terms(lengths[i], lengths[j]))
        yield LinearKernels.known(n=n, between=hsic[0], within=(hsic[1], hsic[2]))


def _standardized(x: Float[Matrix, "n d"], name: str) -> Float[Matrix, "n d"]:
    """Center the rows and scale them to a mean squared length of 1."""
    require_spread(x, name=name)
    mean = mean_row(x)
    if isinstance(x, StreamedRows):
        size = (total((block - mean).square().sum() for block in blocks(x)) / len(x)).sqrt()
        return x.map(lambda block, _: (block.double() - mean) / size, len(mean))
    rows = x.double() - mean
    return rows / rows.square().sum(1).mean().sqrt()


def _hsic(x: Float[Matrix, "n d"], y: Float[Matrix, "n e"]) -> Float[Tensor, ""]:
    """Return `LinearKernels` for centered rows.

    tr K̃L̃ = Σ_{i≠j} ⟨x_i, x_j⟩⟨y_i, y_j⟩ is computed from the smaller of the n × n and the d × e matrix.
    """
    lengths_x = in_one_piece((block.square().sum(1) for block in blocks(x)), len(x))
    lengths_y = in_one_piece((block.square().sum(1) for block in blocks(y)), len(y))
    if len(x) ** 2 <= x.shape[1] * y.shape[1]:
        products = (x[:] @ x[:].T) * (y[:] @ y[:].T)
        off_diagonal = products.sum() - products.trace()
    else:
        cross = total(a.T @ b for a, b in zip(blocks(x), blocks(y), strict=True))
        off_diagonal = cross.square().sum() - (lengths_x * lengths_y).sum()
    return off_diagonal + _length_terms(lengths_x, lengths_y)


def _length_terms(x: Float[Tensor, " n"], y: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return all terms but the first, from the squared lengths of the rows."""
    n = len(x)
    return x.sum() * y.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (x @ y)
