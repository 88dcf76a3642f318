"""The spectrum of the rows: singular values, singular vectors, and the partition function along the vectors."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.statistics.moments import Moments, as_moments
from clip_geometry.geometry.statistics.statistic import BlockedRows, Statistic
from clip_geometry.rows.matrix import Matrix, Rows, as_matrix, blocks, mean_row, require_spread, total
from clip_geometry.rows.streamed import StreamedRows


def triangle(x: Float[Matrix, "n d"], *, center: bool = False) -> Float[Tensor, "k d"]:
    """Return R, upper triangular, (min(n, d), d), with RᵀR = xᵀx, computed block by block in float64.

    With `center`, x is centered first. StreamedRows are read only once for both versions, because the uncentered R
    follows from the centered one and the mean as an additional row.
    """
    if isinstance(x, StreamedRows):
        if "triangle" not in x.known:
            x.known["triangle"] = _reduced(x, mean_row(x))
        if center:
            return x.known["triangle"]
        mean = math.sqrt(len(x)) * mean_row(x)[None]
        return _qr_factor(torch.cat([x.known["triangle"], mean]))[: len(x)]
    return _reduced(x, mean_row(x) if center else 0.0)


def _reduced(x: Float[Matrix, "n d"], mean: Float[Tensor, " d"] | float) -> Float[Tensor, "k d"]:
    """Return R of the QR decomposition of the rows minus `mean`, one block at a time."""
    r = torch.zeros((0, x.shape[1]), dtype=torch.float64, device=x.device)
    for block in blocks(x):
        r = _qr_factor(torch.cat([r, block - mean]))
    return r


def _qr_factor(rows: Float[Tensor, "n d"]) -> Float[Tensor, "k d"]:
    return torch.linalg.qr(rows, mode="reduced" if rows.requires_grad else "r").R  # the gradient needs Q


class Spectrum(Statistic):
    """Singular values of the rows, centered or as given."""

    def __init__(self, x: Rows | Moments):
        self.rows: Any = x if isinstance(x, Moments) else as_matrix(x)
        self.n: int = x.n if isinstance(x, Moments) else len(self.rows)
        self._values: dict[bool, Tensor] = {}  # keyed by `center`

    def require_spread(self) -> None:
        """Raise InputError if all rows are equal."""
        if isinstance(self.rows, Moments):
            as_moments(self.rows)
        else:
            require_spread(self.rows)

    def singular_values(self, *, center: bool) -> Float[Tensor, " k"]:
        """Return the singular values in descending order.

        Those of `Moments`, whose eigenvalues are squares, are rounding error below 1e-8 of the largest.
        """
        if center not in self._values:
            self._values[center] = self._singular_values(center)
        return self._values[center]

    def _singular_values(self, center: bool) -> Float[Tensor, " k"]:
        """Return the singular values of the rows, centered or not, in descending order."""
        x = self.rows
        if isinstance(x, Moments):
            products = x.M2 if center else x.M2 + x.n * torch.outer(x.mean, x.mean)
            return torch.linalg.eigvalsh(products).flip(0)[: x.n - 1 if center else x.n].clamp(min=0).sqrt()
        if isinstance(x, StreamedRows):
            return torch.linalg.svdvals(triangle(x, center=center))
        return torch.linalg.svdvals(x.double() - mean_row(x) if center else x.double())

    @classmethod
    def without_each(cls, rows: BlockedRows) -> Iterator["Spectrum"] | None:
        return None if rows.streamed else (rows.shared(Decomposed).spectrum(block) for block in range(rows.blocks))


class Decomposed:
    """Decompositions of the rows without each block, by subtracting the products of the block from those of all rows.

    `wide` says whether there are at most as many rows as columns.
    """

    def __init__(self, blocked: BlockedRows):
        self.blocked = blocked
        self.wide = len(blocked) <= blocked.rows.shape[1]
        self._whole: dict[bool, tuple[Tensor, Tensor]] = {}  # the rows and their products, keyed by `center`
        self._squares: dict[tuple[int, bool], Tensor] = {}  # keyed by block and `center`

    def vectors(self, block: int) -> tuple[Float[Tensor, " r"], Float[Tensor, "r r"]]:
        """Return the squared singular values, ascending, and orthonormal singular vectors.

        The vectors are left singular vectors if `wide`, otherwise right singular vectors. Squares below rounding error
        are 0.
        """
        squares, vectors = torch.linalg.eigh(self._product(block, center=False))
        self._squares[block, False] = squares = _without_rounding(squares, len(self.blocked))
        return squares, vectors

    def spectrum(self, block: int) -> Spectrum:
        def require_spread_without() -> None:
            first = self.blocked.kept(block).nonzero()[:2, 0]
            if torch.equal(*self.blocked.rows[first]):  # only then the rows must be copied for the full check
                require_spread(self.blocked.without(block))

        def singular_values(*, center: bool) -> Float[Tensor, " r"]:
            return self.squares(block, center=center).sqrt().flip(0)

        n = int(self.blocked.kept(block).sum())
        return Spectrum.known(n=n, require_spread=require_spread_without, singular_values=singular_values)

    def squares(self, block: int, *, center: bool) -> Float[Tensor, " r"]:
        """Return the squared singular values, ascending; those below rounding error are 0."""
        if (block, center) not in self._squares:
            squares = torch.linalg.eigvalsh(self._product(block, center=center))
            self._squares[block, center] = _without_rounding(squares, len(self.blocked))
        return self._squares[block, center]

    def _product(self, block: int, *, center: bool) -> Float[Tensor, "r r"]:
        """Return the smaller of X Xᵀ and Xᵀ X without the block, with X centered if `center` is set."""
        if center not in self._whole:
            rows = self.blocked.rows.double()
            rows = rows - rows.mean(0) if center else rows
            self._whole[center] = rows, (rows @ rows.T if self.wide else rows.T @ rows)
        rows, products = self._whole[center]
        kept = self.blocked.kept(block)
        if self.wide:
            product = products[kept][:, kept]
            means = product.mean(0)
            return product - means - means[:, None] + means.mean() if center else product
        left_out = rows[~kept]
        product = products - left_out.T @ left_out
        if not center:
            return product
        left_out_sum = left_out.sum(0)  # minus the sum of the other rows, because all centered rows sum to 0
        return product - torch.outer(left_out_sum, left_out_sum) / int(kept.sum())


def _without_rounding(squares: Float[Tensor, " r"], n: int) -> Float[Tensor, " r"]:
    return torch.where(squares > n * torch.finfo(squares.dtype).eps * squares[-1], squares, 0)


class Partition(Statistic):
    """log Z(v) = log Σ_i exp⟨v, w_i⟩ along the eigenvectors v of xᵀx, which have no sign.

    Attributes:
        forward: log Z(v), (d,).
        backward: log Z(−v), (d,).
        along: ⟨v, mean⟩, (d,).
    """

    def __init__(self, x: Rows):
        x = as_matrix(x)
        vectors = _eigenvectors(x)
        self.forward, self.backward = _log_partitions(x, vectors)
        self.along = mean_row(x) @ vectors

    @classmethod
    def without_each(cls, rows: BlockedRows) -> Iterator["Partition"] | None:
        return None if rows.streamed else (_partition_without(rows, block) for block in range(rows.blocks))


def _partition_without(rows: BlockedRows, block: int) -> Partition:
    """Return log Z along the eigenvectors of the rows that remain without the block."""
    decomposed = rows.shared(Decomposed)
    squares, vectors = decomposed.vectors(block)
    if not decomposed.wide:
        forward, backward = _log_partitions(rows.without(block), vectors)
        mean = rows.sums.mean + rows.means(rows.sums)[block]
        return Partition.known(forward=forward, backward=backward, along=mean @ vectors)
    products = vectors * squares.sqrt()
    # log Z along the directions that are orthogonal to all rows
    orthogonal = products.new_full((rows.rows.shape[1] - len(squares),), float(len(products))).log()
    return Partition.known(
        forward=torch.cat([products.logsumexp(0), orthogonal]),
        backward=torch.cat([(-products).logsumexp(0), orthogonal]),
        along=torch.cat([products.sum(0), torch.zeros_like(orthogonal)]),
    )


def _eigenvectors(x: Float[Matrix, "n d"]) -> Float[Tensor, "d d"]:
    """Return the eigenvectors of xᵀx by ascending eigenvalue.

    Those of small eigenvalues are precise to half of the digits, but there Z hardly depends on the direction.
    """
    if isinstance(x, StreamedRows):  # other measures use the same triangle
        return right_singular_vectors(x)
    return torch.linalg.eigh(total(block.T @ block for block in blocks(x))).eigenvectors


def right_singular_vectors(x: Float[Matrix, "n d"]) -> Float[Tensor, "d d"]:
    """Return the eigenvectors of xᵀx to full precision, by ascending eigenvalue, at several times the cost."""
    return torch.linalg.svd(triangle(x)).Vh.T.flip(1)


def log_partition(x: Float[Matrix, "n d"], directions: Float[Tensor, "d k"]) -> Float[Tensor, " k"]:
    """Return log Z along the directions."""
    return functools.reduce(torch.logaddexp, ((block @ directions).logsumexp(0) for block in blocks(x)))


def _log_partitions(x: Float[Matrix, "n d"], directions: Float[Tensor, "d k"]) -> tuple[Tensor, Tensor]:
    """Return log Z along the directions and along their negatives, in one pass."""
    products = (block @ directions for block in blocks(x))
    log_sums = (torch.stack([block.logsumexp(0), (-block).logsumexp(0)]) for block in products)
    forward, backward = functools.reduce(torch.logaddexp, log_sums)
    return forward, backward
