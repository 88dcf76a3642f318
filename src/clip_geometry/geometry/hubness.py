"""Hubness: are some rows among the neighbors of very many other rows, and some among the neighbors of none?"""

from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.geometry.kinds import Value, in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.neighbors import Neighbors
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Integer, Literal, one_of, whole_number
from clip_geometry.rows.matrix import Rows, as_matrix, as_two_sets, require_spread, unit_rows

Queries: TypeAlias = Literal["image", "text"]


@in_kind
def hubness(x: Rows | Neighbors, *, k: Integer = 10) -> Float[Tensor, ""]:
    """Return the hubness: the skewness of how often rows appear among the k nearest neighbors of other rows.

    N_i is the number of other rows that have row i among their k nearest rows, by cosine. The mean of N_i is k, and the
    skewness is the mean of (N_i − k)³ divided by (mean of (N_i − k)²)^{3/2}. It is positive if a few rows (hubs) appear
    in most neighbor lists, and 0 if the N_i are symmetric about k or all equal. Equal cosines are ordered by row
    number. Source: Radovanović et al. 2010.

    Args:
        x: Rows, (n, d), n ≥ k + 1, d ≥ 2 (in one dimension all cosines are ±1); or a precomputed `Neighbors`.
        k: Number of neighbors, 1 ≤ k ≤ n − 1.

    Returns:
        The skewness as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: A row is zero, all rows are equal, n or d is too small, or k < 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.geometry.hubness(x), 3)
        0.168
    """
    neighbors, k = Neighbors.of(x).by_cosine(k)
    counts = torch.bincount(neighbors.nearest(k)[1].flatten(), minlength=neighbors.n)
    excess = counts.double() - k
    variance = excess.square().mean()
    return torch.where(variance > 0, excess.pow(3).mean() / variance.clamp(min=1 / neighbors.n).pow(1.5), 0)


class Hubs(NamedTuple):
    """Result of `hubs` and `cross_hubs`: how unevenly rows appear in the neighbor lists of other rows.

    Args:
        robin_hood: Share of all places in the neighbor lists that would have to be given to other rows for all rows to
            appear equally often, in [0, 1).
        antihub_share: Share of the rows that appear in no neighbor list, in [0, 1).

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> cg.geometry.hubs(np.random.default_rng(0).normal(size=(100, 8)))
        Hubs(robin_hood=0.092, antihub_share=0.0)
    """

    robin_hood: Value
    antihub_share: Value


@in_kind
def hubs(x: Rows | Neighbors, *, k: Integer = 10) -> Hubs:
    """Return how unevenly rows appear among the nearest neighbors of other rows: Robin Hood index and anti-hubs.

    N_i is the number of other rows that have row i among their k nearest rows, by cosine. robin_hood = ½ Σ|N_i − k|/Σ
    N_i is the share of places in the neighbor lists that would have to be given to other rows for all rows to appear
    equally often (the Hoover index). antihub_share is the share of rows with N_i = 0. Both lie in [0, 1); lower is more
    even. Equal cosines are ordered by row number. Sources: Feldbauer et al. 2018; Radovanović et al. 2010.

    Args:
        x: Rows, (n, d), n ≥ k + 1, d ≥ 2 (in one dimension all cosines are ±1); or a precomputed `Neighbors`.
        k: Number of neighbors, 1 ≤ k ≤ n − 1.

    Returns:
        A `Hubs` with robin_hood and antihub_share, as floats, or as 0-d float64 tensors for tensor input.

    Raises:
        InputError: A row is zero, all rows are equal, n or d is too small, or k < 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 128))
        >>> cg.geometry.hubs(x)
        Hubs(robin_hood=0.119, antihub_share=0.0)
        >>> cg.geometry.hubs(x + 1)
        Hubs(robin_hood=0.344, antihub_share=0.04)
    """
    neighbors, k = Neighbors.of(x).by_cosine(k)
    return _hubs_of_lists(neighbors.nearest(k)[1], neighbors.n)


@in_kind
def cross_hubs(image: Rows, text: Rows, *, k: Integer = 10, queries: Queries = "image") -> Hubs:
    """Return how unevenly rows of one modality are found by queries of the other: Robin Hood index and anti-hubs.

    With queries="image", N_j is the number of images that have text j among their k nearest texts, by cosine.
    robin_hood is ½ Σ_j|N_j − N̄|/Σ_j N_j, where N̄ = nk/m is the mean of N_j, and antihub_share is the share of texts
    with N_j = 0. Both lie in [0, 1); lower is more even. With queries="text", the roles are exchanged. Within one
    modality, use `hubs`.

    Args:
        image: Rows, (n, d), n ≥ 2, d ≥ 2.
        text: Rows, (m, d), m ≥ k, m ≥ 2. They need not be aligned with the images.
        k: Number of neighbors, from 1 to the number of rows of the modality that is searched.
        queries: "image" searches the texts, "text" the images.

    Returns:
        A `Hubs` with robin_hood and antihub_share, as floats, or as 0-d float64 tensors for tensor input.

    Raises:
        InputError: A row is zero, all rows of a set are equal, there are fewer than k rows to search, or k < 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> tuple(round(cg.geometry.cross_hubs(rows, text).robin_hood, 2) for rows in (image, image + 1))
        (0.11, 0.51)
    """
    queries = one_of(queries, "queries", ("image", "text"))
    k = whole_number(k, "k", of=", of neighbors")
    sets = {}
    for name, rows in zip(("image", "text"), as_two_sets(image, text, ("image", "text"), streams=True), strict=True):
        as_matrix(rows, name=name, least_d=2)
        sets[name] = unit_rows(rows, name=name)
        require_spread(sets[name], name=name)
    searched = "text" if queries == "image" else "image"
    rows = sets[searched]
    if len(rows) < k:
        raise InputError(
            f"{searched} has {len(rows)} rows; expected at least {k} for k = {k} neighbors, or a smaller k"
        )
    return _hubs_of_lists(nearest(sets[queries], k, y=rows)[1], len(rows))


def _hubs_of_lists(neighbors: Int[Tensor, "n k"], n: int) -> Hubs:
    counts = torch.bincount(neighbors.flatten(), minlength=n).double()
    return Hubs((counts - counts.mean()).abs().sum() / (2 * counts.sum()), (counts == 0).double().mean())


add_measure(Measure(name="hubness", function=hubness, statistic=Neighbors, streams=True))
for _name in ("robin_hood", "antihub_share"):
    _of_one = Measure(_name, hubs, attribute=_name, statistic=Neighbors, streams=True)
    add_measure(_of_one)
    for _queries, _searched in (("image", "text"), ("text", "image")):
        _options = {"queries": _queries}
        _direction = f"{_queries}_to_{_searched}"
        add_measure(variant(_of_one, _direction, function=cross_hubs, options=_options, streams=True))
