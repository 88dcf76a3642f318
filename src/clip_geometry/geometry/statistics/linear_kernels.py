"""Linear kernels of aligned sets: the unbiased HSIC of their linear kernels."""

from collections.abc import Iterator
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.statistics.statistic import Dealt, Statistic
from clip_geometry.geometry.statistics.sums import PAIR
from clip_geometry.rows.matrix import (
    Matrix,
    Rows,
    as_aligned,
    blocks,
    in_one_piece,
    mean_row,
    require_spread,
    total,
)
from clip_geometry.rows.streamed import StreamedRows


class LinearKernels(Statistic):
    """n(n − 3) times the unbiased HSIC (Song et al. 2012) of the linear kernels of aligned sets.

    [tr K̃L̃ + 1ᵀK̃1 1ᵀL̃1/((n − 1)(n − 2)) − 2/(n − 2) 1ᵀK̃L̃1], K̃ = xxᵀ and L̃ = yyᵀ with zero diagonals, of rows less
    their mean, of mean square length 1: neither changes their ratios, and fourth powers stay in range. Centering makes
    the row sums of K̃ and L̃ equal to −‖x_i‖² and −‖y_i‖²; it changes nothing, since in this U-statistic every function
    of one row alone cancels.

    Attributes:
        n: Number of pairs.
        between: Of x and y.
        within: Of x and x, and of y and y.
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
    def without_each(cls, x: Dealt, y: Dealt) -> Iterator["LinearKernels"] | None:
        """From the products of all rows less those of the block."""
        return None if x.streamed or y.streamed else _without_each(x, y)


def _without_each(x: Dealt, y: Dealt) -> Iterator[LinearKernels]:
    sets = [_standardized(each.rows, name)[:] for each, name in zip((x, y), PAIR, strict=True)]
    # the same inner products in at most n columns
    sets = [rows if len(rows) >= rows.shape[1] else torch.linalg.qr(rows.T, mode="r").R.T for rows in sets]
    which = ((0, 1), (0, 0), (1, 1))
    products = [sets[i].T @ sets[j] for i, j in which]
    squares = [rows.square().sum(1) for rows in sets]
    for block in range(x.blocks):
        kept = x.kept(block)
        n = int(kept.sum())
        gone = [rows[~kept] for rows in sets]
        means = [-rows.sum(0) / n for rows in gone]  # all rows together have mean 0
        along = zip(squares, sets, means, strict=True)  # ‖w − mean‖² without a copy of the rows
        lengths = [(square - 2 * (rows @ mean) + mean @ mean)[kept] for square, rows, mean in along]
        hsic = []
        for (i, j), whole in zip(which, products, strict=True):
            cross = whole - gone[i].T @ gone[j] - n * torch.outer(means[i], means[j])
            off_diagonal = cross.square().sum() - lengths[i] @ lengths[j]
            hsic.append(off_diagonal + _of_lengths(lengths[i], lengths[j]))
        yield LinearKernels.known(n=n, between=hsic[0], within=(hsic[1], hsic[2]))


def _standardized(x: Float[Matrix, "n d"], name: str) -> Float[Matrix, "n d"]:
    require_spread(x, name=name)
    mean = mean_row(x)
    if isinstance(x, StreamedRows):
        size = (total((block - mean).square().sum() for block in blocks(x)) / len(x)).sqrt()
        return x.map(lambda block, _: (block.double() - mean) / size, len(mean))
    rows = x.double() - mean
    return rows / rows.square().sum(1).mean().sqrt()


def _hsic(x: Float[Matrix, "n d"], y: Float[Matrix, "n e"]) -> Float[Tensor, ""]:
    """Of centered rows. tr K̃L̃ = Σ_{i≠j} ⟨x_i, x_j⟩⟨y_i, y_j⟩, from the smaller of the n × n and the d × e matrix."""
    lengths_x, lengths_y = (
        in_one_piece((block.square().sum(1) for block in blocks(rows)), len(rows)) for rows in (x, y)
    )
    if len(x) ** 2 <= x.shape[1] * y.shape[1]:
        products = (x[:] @ x[:].T) * (y[:] @ y[:].T)
        off_diagonal = products.sum() - products.trace()
    else:
        cross = total(a.T @ b for a, b in zip(blocks(x), blocks(y), strict=True))
        off_diagonal = cross.square().sum() - (lengths_x * lengths_y).sum()
    return off_diagonal + _of_lengths(lengths_x, lengths_y)


def _of_lengths(x: Float[Tensor, " n"], y: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """All but the first term, from the squared lengths of the rows."""
    n = len(x)
    return x.sum() * y.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (x @ y)
