"""Information imbalance: what the neighbors in one space say of the distances in another."""

from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.nearest import as_rows_with_neighbors, nearest
from clip_geometry.geometry.distances.pairwise import squared_distances
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.rows.arguments import Integer
from clip_geometry.rows.matrix import Rows, as_aligned, mean_row, require_spread

ROWS = 512  # whose distances to all rows are compared at a time
SAME = 1e-11  # relative difference of two squared distances, taken from products, that are equal


@in_kind
def information_imbalance(x: Rows, y: Rows, *, k: Integer = 1) -> Float[Tensor, ""]:
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
        >>> round(cg.information_imbalance(x, x[:, :2]), 2), round(cg.information_imbalance(x[:, :2], x), 2)
        (0.41, 0.81)
    """
    x, y = as_aligned(x, y, ("image", "text"), one_space=False)
    x, k = as_rows_with_neighbors(x, k, name="image")
    require_spread(x, name="image")
    require_spread(y, name="text")
    near = nearest(x, k)[1]
    y = y.double() / y.abs().amax()  # so that squares stay in range
    centre = mean_row(y)
    ranks = y.new_zeros(())
    for rows, found in zip(y.split(ROWS), near.split(ROWS), strict=True):
        squares = squared_distances(rows, y, centre=centre)
        for own in squares.gather(1, found).T:
            # a row itself is nearer than all but its copies, and counts as the 1 of the rank
            ranks = ranks + (squares < (1 - SAME) * own[:, None]).sum() + (own == 0).sum()
    return 2 * ranks / (len(y) ** 2 * k)


add_measure(Measure(name="information_imbalance", function=information_imbalance))
