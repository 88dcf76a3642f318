"""Hubness: are some rows the neighbors of very many others?"""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.neighbors import Neighbors
from clip_geometry.rows.arguments import Integer
from clip_geometry.rows.matrix import Rows


@in_kind
def hubness(x: Rows | Neighbors, *, k: Integer = 10) -> Float[Tensor, ""]:
    """Skewness of the k-occurrence counts: how often each row is among the k nearest, by cosine, of another row.

    Mean of (N_i − k)³ over (mean of (N_i − k)²)^{3/2}, N_i the count of row i, whose mean is k. 0 where the counts are
    symmetric or all equal, positive where a few hubs collect most places. Ties are broken by index, as far as unit rows
    keep ties. Source: Radovanović et al. 2010.

    Args:
        x: Rows, (n, d), or `Neighbors`; n ≥ k + 1, d ≥ 2 (in one dimension all cosines are ±1).
        k: Number of neighbors.

    Returns:
        The skewness, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, all rows are equal, n or d is too small, or k < 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.hubness(x), 3)
        0.168
    """
    neighbors = Neighbors.of(x)
    k = neighbors.checked(k, least_d=2)
    neighbors.unit.require_spread()
    counts = torch.bincount(neighbors.unit.nearest(k)[1].flatten(), minlength=neighbors.n)
    excess = counts.double() - k
    variance = excess.square().mean()
    return torch.where(variance > 0, excess.pow(3).mean() / variance.clamp(min=1 / neighbors.n).pow(1.5), 0)


add_measure(Measure(name="hubness", function=hubness, statistic=Neighbors, streams=True))
