"""Hubness: are some rows the neighbors of very many others?"""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.neighbors import as_rows_with_neighbors, nearest
from clip_geometry.geometry._core.rows import Rows, require_spread, unit_rows
from clip_geometry.geometry.measure import Measure, add_measure


@in_kind
def hubness(x: Rows, *, k: Integer = 10) -> Float[Tensor, ""]:
    """Skewness of the k-occurrence counts: how often each row is among the k nearest, by cosine, of another row.

    Mean of (N_i − k)³ over (mean of (N_i − k)²)^{3/2}, N_i the count of row i, whose mean is k. 0 where the counts are
    symmetric or all equal, positive where a few hubs collect most places. Ties are broken by index, as far as unit rows
    keep ties. Source: Radovanović et al. 2010.

    Args:
        x: Rows, (n, d), n ≥ k + 1, d ≥ 2 (in one dimension all cosines are ±1).
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
    x, k = as_rows_with_neighbors(x, k, least_d=2)
    rows = unit_rows(x)
    require_spread(rows)
    _, indices = nearest(rows, k)
    excess = torch.bincount(indices.flatten(), minlength=len(rows)).double() - k
    variance = excess.square().mean()
    return torch.where(variance > 0, excess.pow(3).mean() / variance.clamp(min=1 / len(rows)).pow(1.5), 0)


add_measure(
    Measure(
        name="hubness",
        depends_on_n=True,
        better="lower",
        streams=True,
        title="Hubness",
        brief="whether few rows are the neighbors of very many",
        group="neighbors",
        function=hubness,
        takes="rows",
        summary="The skewness of how often each row is among the ten nearest, by cosine, of another row.",
        reading="Near 0 all rows are found about equally often; above 1 or 2 a few hubs crowd the results of most "
        "queries while many rows are never found.",
        caveat="A common direction makes hubs of the rows nearest to it: 4000 rows of noise in 128 dimensions have "
        "0.2, off centre 5. Copies of a row fill each other's lists and are ranked by their place in the file. It "
        "rises with n: compare equal n only.",
        formula="mean_i (N_i − k)³/(mean_i (N_i − k)²)^{3/2}, N_i how often row i is among the k = 10 nearest",
        range=(-float("inf"), float("inf")),
        direction="lower serves retrieval better",
        at_gaussian=None,
        invariances=("rotation", "scale", "row scale"),
        least_n=11,
        least_d=2,
        quadratic=True,
        smooth=False,
        reference="Radovanović et al. 2010, JMLR 11:2487",
    )
)
