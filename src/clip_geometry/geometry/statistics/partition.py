"""The partition function along the eigenvectors of xᵀx and along their negatives."""

import functools
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.statistics.spectrum import Decomposed
from clip_geometry.geometry.statistics.statistic import Dealt, Statistic
from clip_geometry.geometry.statistics.triangle import triangle
from clip_geometry.rows.matrix import Matrix, Rows, as_matrix, blocks, mean_row, total
from clip_geometry.rows.streamed import StreamedRows

IN_RANGE = 500.0  # exponents whose exponentials and sums of these are far from the ends of float64


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
    def without_each(cls, rows: Dealt) -> Iterator["Partition"] | None:
        return None if rows.streamed else (_without(rows, block) for block in range(rows.blocks))


def _without(rows: Dealt, block: int) -> Partition:
    decomposed = rows.shared(Decomposed)
    squares, vectors = decomposed.vectors(block)
    if not decomposed.wide:
        forward, backward = _log_partitions(rows.without(block), vectors)
        mean = rows.sums.mean + rows.means(rows.sums)[block]
        return Partition.known(forward=forward, backward=backward, along=mean @ vectors)
    products = vectors * squares.sqrt()
    # directions without any row
    none = products.new_full((rows.rows.shape[1] - len(squares),), float(len(products))).log()
    return Partition.known(
        forward=torch.cat([products.logsumexp(0), none]),
        backward=torch.cat([(-products).logsumexp(0), none]),
        along=torch.cat([products.sum(0), torch.zeros_like(none)]),
    )


def _eigenvectors(x: Float[Matrix, "n d"]) -> Float[Tensor, "d d"]:
    """Ascending. Half the digits of the small ones are lost, where Z hardly depends on the direction."""
    if isinstance(x, StreamedRows):  # whose triangle serves other measures, too
        return right_singular_vectors(x)
    return torch.linalg.eigh(total(block.T @ block for block in blocks(x))).eigenvectors


def right_singular_vectors(x: Float[Matrix, "n d"]) -> Float[Tensor, "d d"]:
    """The eigenvectors of xᵀx to all digits, ascending, at several times the cost."""
    return torch.linalg.svd(triangle(x)).Vh.T.flip(1)


def log_partition(x: Float[Matrix, "n d"], directions: Float[Tensor, "d k"]) -> Float[Tensor, " k"]:
    """log Z along the directions."""
    return functools.reduce(torch.logaddexp, ((block @ directions).logsumexp(0) for block in blocks(x)))


def _log_partitions(x: Float[Matrix, "n d"], directions: Float[Tensor, "d k"]) -> tuple[Tensor, Tensor]:
    """The same along the directions and along their negatives, from one pass."""
    forward, backward = functools.reduce(torch.logaddexp, (_both_signs(block @ directions) for block in blocks(x)))
    return forward, backward


def _both_signs(products: Float[Tensor, "b k"]) -> Float[Tensor, "2 k"]:
    """log Σ exp of the products and of their negatives."""
    low, high = products.detach().aminmax()
    if torch.maximum(-low, high) > IN_RANGE:
        return torch.stack([products.logsumexp(0), (-products).logsumexp(0)])
    exps = products.exp()
    return torch.stack([exps.sum(0), exps.reciprocal().sum(0)]).log()
