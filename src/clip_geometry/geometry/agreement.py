"""Agreement between the geometries of two sets of rows for the same items, which may have different dimensions."""

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

ROUNDING = 1e-10  # relative to the squared sum of squared norms; smaller values are rounding error
SAME = 1e-11  # relative tolerance within which two squared distances count as equal
ROWS = 512  # rows per block when neighbors are gathered


@in_kind
def linear_cka(x: Rows | LinearKernels, y: Rows | None = None) -> Float[Tensor, ""]:
    """Return the linear centered kernel alignment (CKA): how similar the similarities of rows are in two sets.

    The value lies in [−1, 1]. It is 1 if y is x rotated, shifted and scaled, and 0 on average if the sets are
    independent, for every n. (The usual CKA is biased: for independent sets it tends to 1 as d/n grows.)

    CKA = HSIC(x, y)/√(HSIC(x, x) HSIC(y, y)), with the unbiased HSIC of Song et al. 2012: HSIC = [tr K̃L̃ + 1ᵀK̃1
    1ᵀL̃1/((n − 1)(n − 2)) − 2/(n − 2) 1ᵀK̃L̃1]/(n(n − 3)), where K̃ and L̃ are xxᵀ and yyᵀ with the diagonal set to 0,
    and 1 is a vector of ones. The cost is O(n d e), or O(n²(d + e)) if that is less.

    Args:
        x: Rows, (n, d), n ≥ 4; or a precomputed `LinearKernels` in place of both arguments.
        y: Rows, (n, e), aligned with x; e may differ from d.

    Returns:
        The alignment as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: There are fewer than 4 rows, the numbers of rows differ, or HSIC(x, x) or HSIC(y, y) is 0 because
            all rows but one are equal or all rows are equally far apart.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.geometry.linear_cka(image, image[:, :4]), 3)
        0.628
    """
    hsic = LinearKernels.of(x, y)
    for self_hsic, name in zip(hsic.within, ("image", "text"), strict=True):
        if self_hsic <= ROUNDING * hsic.n**2:
            raise InputError(
                f"the {hsic.n} rows of {name} are all equal but one, or all equally far apart, so linear_cka is "
                "undefined (0/0); give rows that differ"
            )
    x_root, y_root = (self_hsic.sqrt() for self_hsic in hsic.within)
    return (hsic.between / (x_root * y_root)).clamp(-1, 1)


@in_kind
def mutual_knn(x: Rows | PairedNeighbors, y: Rows | None = None, *, k: Integer = 10) -> Float[Tensor, ""]:
    """Return the average share of the k nearest neighbors of a row that two sets have in common (Huh et al. 2024).

    The value is mean_i |kNN_x(i) ∩ kNN_y(i)|/k, where kNN_x(i) are the k nearest other rows of row i in x, by cosine.
    It lies in [0, 1]; higher means more similar sets, and k/(n − 1) is the average for independent sets. Equal cosines
    are ordered by row number.

    Args:
        x: Rows, (n, d), n ≥ k + 1, d ≥ 2; or a precomputed `PairedNeighbors` in place of both arguments.
        y: Rows, (n, e), aligned with x, e ≥ 2.
        k: Number of neighbors, 1 ≤ k ≤ n − 1.

    Returns:
        The share as a float, or as a 0-d float64 tensor for tensor input.

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
    """Return the share of the neighbors that two lists of the same row have in common, over all rows."""
    # an index that is in both lists appears twice, side by side, in the sorted concatenation
    parts = [joined.sort(dim=1).values for joined in torch.cat([a, b], dim=1).split(BLOCK)]
    common = torch.stack([(indices[:, 1:] == indices[:, :-1]).sum() for indices in parts]).sum()
    return common.double() / a.numel()


@in_kind
def cycle_knn(x: Rows | PairedNeighbors, y: Rows | None = None, *, k: Integer = 10) -> Float[Tensor, ""]:
    """Return how often a step to a neighbor in one set and a step back in the other return to the same row.

    The value is the share of rows i for which a row j exists such that j is one of the k nearest neighbors of i in y,
    and i is one of the k nearest neighbors of j in x, by cosine (Huh et al. 2024). A row is not its own neighbor. The
    value lies in [0, 1]; for independent sets it is about 1 − (1 − k/(n − 1))^k. Exchanging x and y changes it. Equal
    cosines are ordered by row number. The cost is O(n²(d + e)).

    Args:
        x: Rows, (n, d), n ≥ k + 1, d ≥ 2; or a precomputed `PairedNeighbors` in place of both arguments.
        y: Rows, (n, e), aligned with x, e ≥ 2.
        k: Number of neighbors, 1 ≤ k ≤ n − 1.

    Returns:
        The share as a float, or as a 0-d float64 tensor for tensor input.

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
    reached = near_x[near_y]  # the neighbors in x of the neighbors in y
    rows = torch.arange(len(reached), device=reached.device)[:, None, None]
    return (reached == rows).flatten(1).any(1).double().mean()


@in_kind
def cknna(x: Rows | PairedNeighbors, y: Rows | None = None, *, k: Integer = 10) -> Float[Tensor, ""]:
    """Return the similarity of the neighborhoods of two sets: CKA restricted to common neighbors (Huh et al. 2024).

    CKNNA, the centered kernel nearest-neighbor alignment, is A(x, y)/√(A(x, x) A(y, y)). A is the unbiased HSIC (Song
    et al. 2012) of the two matrices of cosines, in which entry ij is set to 0 unless j is among the k nearest rows of i
    in both sets, as in the authors' code.

    The value is clipped to [−1, 1]: 1 if both sets have the same neighbors at the same cosines, near 0 if they are
    independent. Exchanging the sets changes it slightly, because i can be a neighbor of j without j being a neighbor of
    i. Equal cosines are ordered by row number. The value is differentiable as long as the neighbors do not change. It
    takes O(n²(d + e)) time and O(nk) memory.

    Args:
        x: Rows, (n, d), n ≥ max(4, k + 1), d ≥ 2; or a precomputed `PairedNeighbors` in place of both arguments.
        y: Rows, (n, e), aligned with x, e ≥ 2.
        k: Number of neighbors, 2 ≤ k ≤ n − 1.

    Returns:
        The alignment as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: A row is zero, all rows are equal, the numbers of rows differ, n, d, e or k is too small, or A(x, x)
            or A(y, y) is not positive.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.geometry.cknna(image, image[:, :4]), 2), round(cg.geometry.cknna(image, text), 2)
        (0.41, 0.1)
    """
    paired = PairedNeighbors.of(x, y)
    for neighbors in (paired.image, paired.text):
        as_rows(neighbors.rows, name=neighbors.name, least=4)
    image, text, k = paired.unit(k, least_k=2)
    n = image.n
    i = torch.arange(n, device=image.rows.device).repeat_interleave(k)
    # neighbor indices in ascending order, so that the edges ij are sorted
    near_x, near_y = image.nearest(k)[1].sort(1).values, text.nearest(k)[1].sort(1).values
    j_x, j_y = near_x.flatten(), near_y.flatten()
    cosines_x, cosines_y = _cosines(image.rows, near_x), _cosines(text.rows, near_y)
    in_y, in_x = torch.isin(i * n + j_x, i * n + j_y), torch.isin(i * n + j_y, i * n + j_x)
    between = _hsic(i[in_y], j_x[in_y], cosines_x[in_y], cosines_y[in_x], n)
    within = _hsic(i, j_x, cosines_x, cosines_x, n), _hsic(i, j_y, cosines_y, cosines_y, n)
    for hsic, name in zip(within, ("image", "text"), strict=True):
        if hsic <= 1e-10 * n * k:
            raise InputError(
                f"the cosines of the {k} nearest rows of {name} do not align with themselves, so cknna is undefined; "
                "give another k or other rows"
            )
    return (between / (within[0].sqrt() * within[1].sqrt())).clamp(-1, 1)


def _cosines(rows: Float[Tensor, "n d"], near: Int[Tensor, "n k"]) -> Float[Tensor, " e"]:
    """Return the cosines of each row with its k neighbors, flattened row by row to (n · k,)."""
    blocks = zip(rows.split(ROWS), near.split(ROWS), strict=True)
    return torch.cat([(rows[j] @ block[:, :, None]).flatten() for block, j in blocks])


def _hsic(
    i: Int[Tensor, " e"], j: Int[Tensor, " e"], a: Float[Tensor, " e"], b: Float[Tensor, " e"], n: int
) -> Float[Tensor, ""]:
    """Return n(n − 3) times the unbiased HSIC of two sparse matrices with zero diagonals.

    Both matrices have entries at the same positions ij, which are sorted; `a` and `b` hold their values there.
    """
    edges, reverse = i * n + j, j * n + i
    positions = torch.searchsorted(edges, reverse).clamp(max=max(len(edges) - 1, 0))
    b_transposed = torch.where(edges[positions] == reverse, b[positions], 0)  # the entries of the second matrix at ji
    column_sums = a.new_zeros(n).index_add(0, j, a)
    row_sums = a.new_zeros(n).index_add(0, i, b)
    off_diagonal = (a * b_transposed).sum()
    return off_diagonal + a.sum() * b.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (column_sums @ row_sums)


@in_kind
def information_imbalance(x: Rows | PairedNeighbors, y: Rows | None = None, *, k: Integer = 1) -> Float[Tensor, ""]:
    """Return the information imbalance Δ(x → y), which says how well neighbors in x predict neighbors in y.

    Δ(x → y) = 2/(n²k) Σ_i Σ_j r_ij over the k nearest neighbors j of row i in x. r_ij is the rank of j among the
    neighbors of i in y, by Euclidean distance, starting at 1. The value lies in (0, 2); lower means better predicted.
    It is 2/n for k = 1 if every nearest neighbor in x is also the nearest in y, and 1 on average if the sets are
    independent. It is not symmetric: Δ(x → y) < Δ(y → x) means that x predicts y better than y predicts x. Equal
    distances in x are ordered by row number. The cost is O(n²(d + e)), in blocks. Source: Glielmo et al. 2022.

    Args:
        x: Rows, (n, d), n ≥ k + 1; or a precomputed `PairedNeighbors` in place of both arguments.
        y: Rows, (n, e), aligned with x.
        k: Number of neighbors, 1 ≤ k ≤ n − 1.

    Returns:
        The imbalance as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The numbers of rows differ, all rows of a set are equal, n is too small, or k < 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> pairs = (x, x[:, :2]), (x[:, :2], x)
        >>> tuple(round(cg.geometry.information_imbalance(*pair), 2) for pair in pairs)
        (0.41, 0.81)
    """
    paired = PairedNeighbors.of(x, y)
    x, y = (as_rows(neighbors.rows, name=neighbors.name) for neighbors in (paired.image, paired.text))
    k = paired.image.checked(k)
    paired.image.require_spread()
    paired.text.require_spread()
    y = y.double() / y.abs().amax()  # so that squares stay in range
    ranks = torch.stack([_ranks(y, near).sum() for near in paired.image.nearest(k)[1].T]).sum()
    return 2 * ranks.double() / (len(y) ** 2 * k)


def _ranks(y: Float[Tensor, "n d"], near: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Return 1 + the number of rows that are nearer to row i than row near_i is.

    The exact copies of row i count as nearer than all other rows, but not as nearer than each other.
    """
    squares = (1 - SAME) * squared_distances_of_pairs(y, y, torch.arange(len(y), device=y.device), near)
    return 1 + count_nearer(y, None, squares, lambda i, j: squared_distances_of_pairs(y, y, i, j) < squares[i])


add_measure(Measure(name="cka", function=linear_cka, statistic=LinearKernels, streams=True))
add_measure(Measure(name="mutual_knn", function=mutual_knn, statistic=PairedNeighbors, streams=True))
add_measure(Measure(name="cycle_knn", function=cycle_knn, statistic=PairedNeighbors, streams=True))
add_measure(Measure(name="cknna", function=cknna, statistic=PairedNeighbors))
add_measure(Measure(name="information_imbalance", function=information_imbalance, statistic=PairedNeighbors))
