"""Do two sets of rows of the same items have the same geometry? The rows need not lie in one space."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.left_out import LeftOut
from clip_geometry.geometry._core.neighbors import as_rows_with_neighbors, nearest
from clip_geometry.geometry._core.rows import (
    BLOCK,
    Matrix,
    Rows,
    as_aligned_matrices,
    blocks,
    in_one_piece,
    mean_row,
    require_spread,
    total,
    unit_rows,
)
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.registry import InputError

ROUNDING = 1e-10  # of the squared sum of squared norms: smaller is made of last digits


@in_kind
def linear_cka(x: Rows, y: Rows) -> Float[Tensor, ""]:
    """Linear centered kernel alignment, with the unbiased HSIC of Song et al. 2012.

    HSIC(x, y)/√(HSIC(x, x) HSIC(y, y)), HSIC = [tr K̃L̃ + 1ᵀK̃1 1ᵀL̃1/((n − 1)(n − 2)) − 2/(n − 2) 1ᵀK̃L̃1]/(n(n − 3)),
    K̃ = xxᵀ and L̃ = yyᵀ with zero diagonals. In [−1, 1]: 1 where y is x rotated, shifted and scaled; 0 on average
    where the sets are independent, whatever n (the usual, biased CKA tends to 1 as d/n grows). O(n d e), or O(n²(d +
    e)) where that is less.

    Args:
        x: Rows, (n, d), n ≥ 4.
        y: Rows, (n, e), aligned with x, of any dimension.

    Returns:
        The alignment, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: There are fewer than 4 rows, the numbers of rows differ, or HSIC(x, x) or HSIC(y, y) is 0: all rows
            but one are equal, or all are equally far apart.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.linear_cka(image, image[:, :4]), 3)
        0.628
    """
    x, y = as_aligned_matrices(x, y, ("image", "text"), least=4, one_space=False)
    x, y = _standardized(x, "image"), _standardized(y, "text")
    return _ratio(_hsic(x, y), _hsic(x, x), _hsic(y, y), len(x))


def _standardized(x: Float[Matrix, "n d"], name: str) -> Float[Matrix, "n d"]:
    """Rows less their mean, of mean square length 1: neither changes CKA, and fourth powers stay in range."""
    require_spread(x, name=name)
    mean = mean_row(x)
    if isinstance(x, StreamedRows):
        size = (total((block - mean).square().sum() for block in blocks(x)) / len(x)).sqrt()
        return x.map(lambda block, _: (block.double() - mean) / size, len(mean))
    rows = x.double() - mean
    return rows / rows.square().sum(1).mean().sqrt()


def _ratio(between: Float[Tensor, ""], own_x: Float[Tensor, ""], own_y: Float[Tensor, ""], n: int) -> Float[Tensor, ""]:
    for own, name in ((own_x, "image"), (own_y, "text")):
        if own <= ROUNDING * n**2:
            raise InputError(
                f"the {n} rows of {name} are all equal but one, or all equally far apart; linear_cka is 0/0 there"
            )
    return (between / (own_x.sqrt() * own_y.sqrt())).clamp(-1, 1)


def _hsic(x: Float[Matrix, "n d"], y: Float[Matrix, "n e"]) -> Float[Tensor, ""]:
    """n(n − 3) times the unbiased HSIC, of centered rows.

    Centering changes nothing: the estimate is a U-statistic in which every function of one row alone cancels. It makes
    the row sums of K̃ and L̃ equal to −‖x_i‖² and −‖y_i‖².
    """
    lengths_x, lengths_y = _squares(x), _squares(y)
    # tr K̃L̃ = Σ_{i≠j} ⟨x_i, x_j⟩⟨y_i, y_j⟩, from the smaller of the n × n and the d × e matrix
    if len(x) ** 2 <= x.shape[1] * y.shape[1]:
        products = (x[:] @ x[:].T) * (y[:] @ y[:].T)
        off_diagonal = products.sum() - products.trace()
    else:
        cross = total(a.T @ b for a, b in zip(blocks(x), blocks(y), strict=True))
        off_diagonal = cross.square().sum() - (lengths_x * lengths_y).sum()
    return off_diagonal + _of_lengths(lengths_x, lengths_y)


def _of_lengths(x: Float[Tensor, " n"], y: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """All but the first term of `_hsic`, from the squared lengths of the rows."""
    n = len(x)
    return x.sum() * y.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (x @ y)


def _squares(x: Float[Matrix, "n d"]) -> Float[Tensor, " n"]:
    return in_one_piece((block.square().sum(1) for block in blocks(x)), len(x))


def _cka_left_out(x: LeftOut, y: LeftOut) -> Iterator[Tensor]:
    """linear_cka without each block, from the products of all rows less those of the block."""
    sets = [_standardized(each.rows, name)[:] for each, name in ((x, "image"), (y, "text"))]
    # the same inner products in at most n columns
    sets = [rows if len(rows) >= rows.shape[1] else torch.linalg.qr(rows.T, mode="r").R.T for rows in sets]
    which = ((0, 1), (0, 0), (1, 1))
    products = [sets[i].T @ sets[j] for i, j in which]
    for block in range(x.blocks):
        kept = x.kept(block)
        n = int(kept.sum())
        means = [-rows[~kept].sum(0) / n for rows in sets]  # all rows together have mean 0
        lengths = [(rows[kept] - mean).square().sum(1) for rows, mean in zip(sets, means, strict=True)]
        hsic = []
        for (i, j), whole in zip(which, products, strict=True):
            cross = whole - sets[i][~kept].T @ sets[j][~kept] - n * torch.outer(means[i], means[j])
            off_diagonal = cross.square().sum() - lengths[i] @ lengths[j]
            hsic.append(off_diagonal + _of_lengths(lengths[i], lengths[j]))
        yield _ratio(hsic[0], hsic[1], hsic[2], n)


@in_kind
def mutual_knn(x: Rows, y: Rows, *, k: Integer = 10) -> Float[Tensor, ""]:
    """Share of the k nearest neighbors by cosine that two sets agree on (Huh et al. 2024).

    Mean over rows of |kNN_x(i) ∩ kNN_y(i)|/k, the row itself excluded. Ties are broken by index, as far as unit rows
    keep ties. In [0, 1]; k/(n − 1) on average where the sets are independent.

    Args:
        x: Rows, (n, d), n ≥ k + 1, d ≥ 2.
        y: Rows, (n, e), aligned with x, e ≥ 2.
        k: Number of neighbors.

    Returns:
        The share, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, all rows are equal, the numbers of rows differ, n, d or e is too small, or k < 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.mutual_knn(image, image[:, :4]), 3)
        0.396
    """
    names = ("image", "text")
    """`mutual_knn` of sets that messages call by these names."""
    x, y = as_aligned_matrices(x, y, names, one_space=False)
    found = []
    for rows, name in zip((x, y), names, strict=True):
        rows, k = as_rows_with_neighbors(rows, k, name=name, least_d=2)
        rows = unit_rows(rows, name=name)
        require_spread(rows, name=name)
        found.append(nearest(rows, k)[1])
    return _share_in_common(*found)


def _share_in_common(a: Int[Tensor, "n k"], b: Int[Tensor, "n k"]) -> Float[Tensor, ""]:
    # an index in both lists stands twice in their union, side by side once it is sorted
    parts = [both.sort(dim=1).values for both in torch.cat([a, b], dim=1).split(BLOCK)]
    common = torch.stack([(part[:, 1:] == part[:, :-1]).sum() for part in parts]).sum()
    return common.double() / a.numel()


add_measure(Measure(name="cka", streams=True, function=linear_cka, left_out=_cka_left_out))
add_measure(Measure(name="mutual_knn", streams=True, function=mutual_knn))
