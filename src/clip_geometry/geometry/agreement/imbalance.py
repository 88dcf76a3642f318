"""Information imbalance: what the neighbors in one space say of the distances in another."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.nearest import count_nearer
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.neighbors import PairedNeighbors
from clip_geometry.rows.arguments import Integer
from clip_geometry.rows.matrix import Rows, as_rows


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
        >>> round(cg.information_imbalance(x, x[:, :2]), 2), round(cg.information_imbalance(x[:, :2], x), 2)
        (0.41, 0.81)
    """
    both = PairedNeighbors.of(x, y)
    x, y = (as_rows(each.rows, name=each.name) for each in (both.image, both.text))
    k = both.image.checked(k)
    both.image.require_spread()
    both.text.require_spread()
    y = y.double() / y.abs().amax()  # so that squares stay in range
    # a row itself counts as the 1 of the rank
    ranks = torch.stack([count_nearer(y, near) for near in both.image.nearest(k)[1].T]).sum()
    return 2 * ranks.double() / (len(y) ** 2 * k)


add_measure(Measure(name="information_imbalance", function=information_imbalance, statistic=PairedNeighbors))
