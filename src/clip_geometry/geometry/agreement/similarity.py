"""Do two sets of rows of the same items have the same geometry? The rows need not lie in one space."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.linear_kernels import LinearKernels
from clip_geometry.geometry.statistics.neighbors import PairedNeighbors
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Integer
from clip_geometry.rows.matrix import BLOCK, Rows

ROUNDING = 1e-10  # of the squared sum of squared norms: smaller is made of last digits


@in_kind
def linear_cka(x: Rows | LinearKernels, y: Rows | None = None) -> Float[Tensor, ""]:
    """Linear centered kernel alignment, with the unbiased HSIC of Song et al. 2012.

    HSIC(x, y)/√(HSIC(x, x) HSIC(y, y)), HSIC = [tr K̃L̃ + 1ᵀK̃1 1ᵀL̃1/((n − 1)(n − 2)) − 2/(n − 2) 1ᵀK̃L̃1]/(n(n − 3)),
    K̃ = xxᵀ and L̃ = yyᵀ with zero diagonals. In [−1, 1]: 1 where y is x rotated, shifted and scaled; 0 on average
    where the sets are independent, whatever n (the usual, biased CKA tends to 1 as d/n grows). O(n d e), or O(n²(d +
    e)) where that is less.

    Args:
        x: Rows, (n, d), n ≥ 4; or `LinearKernels` alone.
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
    hsic = LinearKernels.of(x, y)
    for own, name in zip(hsic.within, ("image", "text"), strict=True):
        if own <= ROUNDING * hsic.n**2:
            raise InputError(
                f"the {hsic.n} rows of {name} are all equal but one, or all equally far apart; linear_cka is 0/0 there"
            )
    x_root, y_root = (own.sqrt() for own in hsic.within)
    return (hsic.between / (x_root * y_root)).clamp(-1, 1)


@in_kind
def mutual_knn(x: Rows | PairedNeighbors, y: Rows | None = None, *, k: Integer = 10) -> Float[Tensor, ""]:
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
    image, text, k = PairedNeighbors.of(x, y).unit(k)
    return _share_in_common(image.nearest(k)[1], text.nearest(k)[1])


def _share_in_common(a: Int[Tensor, "n k"], b: Int[Tensor, "n k"]) -> Float[Tensor, ""]:
    # an index in both lists stands twice in their union, side by side once it is sorted
    parts = [both.sort(dim=1).values for both in torch.cat([a, b], dim=1).split(BLOCK)]
    common = torch.stack([(part[:, 1:] == part[:, :-1]).sum() for part in parts]).sum()
    return common.double() / a.numel()


add_measure(Measure(name="cka", function=linear_cka, statistic=LinearKernels, streams=True))
add_measure(Measure(name="mutual_knn", function=mutual_knn, statistic=PairedNeighbors, streams=True))
