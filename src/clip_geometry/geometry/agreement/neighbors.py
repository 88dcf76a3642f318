"""Do two sets of the same items have the same neighbors? Two measures of Huh et al. 2024 beside `mutual_knn`."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.neighbors import PairedNeighbors
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Integer
from clip_geometry.rows.matrix import Rows, as_rows

ROWS = 512  # whose neighbors are gathered at a time


@in_kind
def cycle_knn(x: Rows | PairedNeighbors, y: Rows | None = None, *, k: Integer = 10) -> Float[Tensor, ""]:
    """Share of the rows that are found again by a step to a neighbor in y and one back in x (Huh et al. 2024).

    Mean over rows i of [i ∈ kNN_x(j) for some j ∈ kNN_y(i)], k nearest by cosine, the row itself excluded. In [0, 1]:
    about 1 − (1 − k/(n − 1))^k where the sets are independent. Not symmetric. Ties are broken by index, as far as unit
    rows keep ties. O(n²(d + e)).

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
        >>> round(cg.cycle_knn(image, image[:, :4]), 2), round(cg.cycle_knn(image, text), 2)
        (1.0, 0.66)
    """
    image, text, k = PairedNeighbors.of(x, y).unit(k)
    near_x, near_y = image.nearest(k)[1], text.nearest(k)[1]
    back = near_x[near_y]  # the neighbors in x of the neighbors in y
    own = torch.arange(len(back), device=back.device)[:, None, None]
    return (back == own).flatten(1).any(1).double().mean()


@in_kind
def cknna(x: Rows | PairedNeighbors, y: Rows | None = None, *, k: Integer = 10) -> Float[Tensor, ""]:
    """Centered kernel nearest-neighbor alignment: CKA that counts only common neighbors (Huh et al. 2024).

    A(x, y)/√(A(x, x) A(y, y)), A the unbiased HSIC (Song et al. 2012) of the cosine matrices of x and y in which only
    the entries ij remain whose j is among the k nearest rows of i in both, as the authors' code computes it. Clipped to
    [−1, 1]: 1 where x and y have the same neighbors at the same cosines, near 0 where they are independent. Exchanging
    the sets changes it slightly, since neighbors are not mutual. Ties are broken by index, as far as unit rows keep
    ties. Differentiable where the neighbors stay. O(n²(d + e)), O(nk) memory.

    Args:
        x: Rows, (n, d), n ≥ max(4, k + 1), d ≥ 2.
        y: Rows, (n, e), aligned with x, e ≥ 2.
        k: Number of neighbors, ≥ 2.

    Returns:
        The alignment, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, all rows are equal, the numbers of rows differ, n, d, e or k is too small, or the
            cosines of neighbors have no alignment with themselves.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.cknna(image, image[:, :4]), 2), round(cg.cknna(image, text), 2)
        (0.41, 0.1)
    """
    both = PairedNeighbors.of(x, y)
    for each in (both.image, both.text):
        as_rows(each.rows, name=each.name, least=4)
    image, text, k = both.unit(k, least_k=2)
    n = image.n
    i = torch.arange(n, device=image.rows.device).repeat_interleave(k)
    near = [(each.rows, each.nearest(k)[1].sort(1).values) for each in (image, text)]  # edges ij in order
    (j_x, of_x), (j_y, of_y) = ((each.flatten(), _cosines(rows, each)) for rows, each in near)
    in_y, in_x = torch.isin(i * n + j_x, i * n + j_y), torch.isin(i * n + j_y, i * n + j_x)
    between = _hsic(i[in_y], j_x[in_y], of_x[in_y], of_y[in_x], n)
    own = _hsic(i, j_x, of_x, of_x, n), _hsic(i, j_y, of_y, of_y, n)
    for each, name in zip(own, ("image", "text"), strict=True):
        if each <= 1e-10 * n * k:
            raise InputError(
                f"the cosines of the {k} nearest rows of {name} do not align with themselves; cknna is undefined there"
            )
    return (between / (own[0].sqrt() * own[1].sqrt())).clamp(-1, 1)


def _cosines(rows: Float[Tensor, "n d"], near: Int[Tensor, "n k"]) -> Float[Tensor, " e"]:
    """Of each row with its neighbors, row after row."""
    blocks = zip(rows.split(ROWS), near.split(ROWS), strict=True)
    return torch.cat([(rows[j] @ block[:, :, None]).flatten() for block, j in blocks])


def _hsic(
    i: Int[Tensor, " e"], j: Int[Tensor, " e"], a: Float[Tensor, " e"], b: Float[Tensor, " e"], n: int
) -> Float[Tensor, ""]:
    """n(n − 3) times the unbiased HSIC of two matrices with zero diagonals and the entries a and b at ij, in order."""
    edges, reverse = i * n + j, j * n + i
    place = torch.searchsorted(edges, reverse).clamp(max=max(len(edges) - 1, 0))
    back = torch.where(edges[place] == reverse, b[place], 0)  # the entry of b at ji
    into, out_of = (a.new_zeros(n).index_add(0, at, values) for at, values in ((j, a), (i, b)))
    return (a * back).sum() + a.sum() * b.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (into @ out_of)


add_measure(Measure(name="cycle_knn", function=cycle_knn, statistic=PairedNeighbors, streams=True))
add_measure(Measure(name="cknna", function=cknna, statistic=PairedNeighbors))
