"""Do two sets of rows of the same items have the same geometry? The rows need not lie in one space."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.nearest import count_nearer
from clip_geometry.geometry.distances.pairwise import squared_distances_of_pairs
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.kernels import LinearKernels
from clip_geometry.geometry.statistics.neighbors import PairedNeighbors
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Integer
from clip_geometry.rows.matrix import BLOCK, Rows, as_rows

ROUNDING = 1e-10  # of the squared sum of squared norms: smaller is made of last digits
SAME = 1e-11  # relative difference of two squared distances that are equal
ROWS = 512  # whose neighbors are gathered at a time


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
        >>> round(cg.geometry.linear_cka(image, image[:, :4]), 3)
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
        >>> round(cg.geometry.mutual_knn(image, image[:, :4]), 3)
        0.396
    """
    image, text, k = PairedNeighbors.of(x, y).unit(k)
    return _share_in_common(image.nearest(k)[1], text.nearest(k)[1])


def _share_in_common(a: Int[Tensor, "n k"], b: Int[Tensor, "n k"]) -> Float[Tensor, ""]:
    # an index in both lists stands twice in their union, side by side once it is sorted
    parts = [both.sort(dim=1).values for both in torch.cat([a, b], dim=1).split(BLOCK)]
    common = torch.stack([(part[:, 1:] == part[:, :-1]).sum() for part in parts]).sum()
    return common.double() / a.numel()


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
        >>> round(cg.geometry.cycle_knn(image, image[:, :4]), 2), round(cg.geometry.cycle_knn(image, text), 2)
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
        >>> round(cg.geometry.cknna(image, image[:, :4]), 2), round(cg.geometry.cknna(image, text), 2)
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
    """Return the cosines of each row with its k neighbors, (n · k,), row by row."""
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


@in_kind
def information_imbalance(x: Rows | PairedNeighbors, y: Rows | None = None, *, k: Integer = 1) -> Float[Tensor, ""]:
    """Information imbalance Δ(x → y): how far in y the nearest neighbors in x are, by rank (Glielmo et al. 2022).

    2/(n²k) Σ_i Σ_j r_ij over the k nearest neighbors j of row i in x, r_ij = 1 + the number of rows nearer to i than j
    in y, by Euclidean distance. In (0, 2): 2/n where the neighbors agree fully (k = 1), 1 on average where the sets are
    independent. Not symmetric: Δ(x → y) < Δ(y → x) means that x says more about y than y about x. O(n²(d + e)), in
    blocks. Equally near neighbors in x are taken in their order.

    Args:
        x: Rows, (n, d), n ≥ k + 1.
        y: Rows, (n, e), aligned with x.
        k: Number of neighbors.

    Returns:
        The imbalance, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The numbers of rows differ, all rows of a set are equal, n is too small, or k < 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> pairs = (x, x[:, :2]), (x[:, :2], x)
        >>> tuple(round(cg.geometry.information_imbalance(*pair), 2) for pair in pairs)
        (0.41, 0.81)
    """
    both = PairedNeighbors.of(x, y)
    x, y = (as_rows(each.rows, name=each.name) for each in (both.image, both.text))
    k = both.image.checked(k)
    both.image.require_spread()
    both.text.require_spread()
    y = y.double() / y.abs().amax()  # so that squares stay in range
    ranks = torch.stack([_ranks(y, near).sum() for near in both.image.nearest(k)[1].T]).sum()
    return 2 * ranks.double() / (len(y) ** 2 * k)


def _ranks(y: Float[Tensor, "n d"], near: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """1 + the number of rows nearer to row i than row near_i is. A copy of row i counts as nearer than others only."""
    squares = (1 - SAME) * squared_distances_of_pairs(y, y, torch.arange(len(y), device=y.device), near)
    return 1 + count_nearer(y, None, squares, lambda i, j: squared_distances_of_pairs(y, y, i, j) < squares[i])


add_measure(Measure(name="cka", function=linear_cka, statistic=LinearKernels, streams=True))
add_measure(Measure(name="mutual_knn", function=mutual_knn, statistic=PairedNeighbors, streams=True))
add_measure(Measure(name="cycle_knn", function=cycle_knn, statistic=PairedNeighbors, streams=True))
add_measure(Measure(name="cknna", function=cknna, statistic=PairedNeighbors))
add_measure(Measure(name="information_imbalance", function=information_imbalance, statistic=PairedNeighbors))
