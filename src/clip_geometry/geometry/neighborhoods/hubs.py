"""Hubs and anti-hubs: what share of the places among the nearest a few rows take, and how many rows take none."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer, one_of, whole_number
from clip_geometry.geometry._core.kinds import Value, in_kind
from clip_geometry.geometry._core.neighbors import as_rows_with_neighbors, nearest
from clip_geometry.geometry._core.rows import Rows, as_two_matrices, require_spread, unit_rows
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.registry import InputError

if TYPE_CHECKING:
    Queries: TypeAlias = Literal["image", "text"]
else:  # an unknown one is our sentence, not a type checker's
    Queries = Any


class Hubs(NamedTuple):
    """How unevenly rows are found.

    Args:
        robin_hood: Share of all places among the nearest that had to pass to other rows for all to have as many.
        antihub_share: Share of the rows that are among the nearest of none.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> cg.hubs(np.random.default_rng(0).normal(size=(100, 8)))
        Hubs(robin_hood=0.092, antihub_share=0.0)
    """

    robin_hood: Value
    antihub_share: Value


@in_kind
def hubs(x: Rows, *, k: Integer = 10) -> Hubs:
    """Robin Hood index and share of anti-hubs: how unevenly rows are among the k nearest of others.

    N_i counts row i among the k nearest, by cosine, of the other rows. robin_hood = ½ Σ|N_i − k|/Σ N_i, the share of
    places that had to be dealt out anew for all rows to be found equally often (the Hoover index); antihub_share = the
    share of rows with N_i = 0. Both in [0, 1). Ties are broken by index. Sources: Feldbauer et al. 2018; Radovanović et
    al. 2010.

    Args:
        x: Rows, (n, d), n ≥ k + 1, d ≥ 2 (in one dimension all cosines are ±1).
        k: Number of neighbors.

    Returns:
        A `Hubs`: robin_hood and antihub_share, floats (for tensors 0-d float64 tensors).

    Raises:
        InputError: A row is zero, all rows are equal, n or d is too small, or k < 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 128))
        >>> cg.hubs(x)
        Hubs(robin_hood=0.119, antihub_share=0.0)
        >>> cg.hubs(x + 1)
        Hubs(robin_hood=0.344, antihub_share=0.04)
    """
    x, k = as_rows_with_neighbors(x, k, least_d=2)
    rows = unit_rows(x)
    require_spread(rows)
    return _of_counts(nearest(rows, k)[1], len(rows))


@in_kind
def cross_hubs(image: Rows, text: Rows, *, k: Integer = 10, queries: Queries = "image") -> Hubs:
    """Robin Hood index and share of anti-hubs of the rows of one modality, as those of the other find them.

    As `hubs`, with N_j how often text j is among the k nearest texts, by cosine, of an image; with queries="text" how
    often an image is among those of a text. The mean of N_j is nk/m.

    Args:
        image: Rows, (n, d), n ≥ 2, d ≥ 2.
        text: Rows, (m, d), m ≥ k, m ≥ 2; they need not pair with the images.
        k: Number of neighbors.
        queries: "image" looks for texts, "text" for images.

    Returns:
        A `Hubs`: robin_hood and antihub_share, floats (for tensors 0-d float64 tensors).

    Raises:
        InputError: A row is zero, all rows of a set are equal, there are fewer than k rows to find, or k < 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.cross_hubs(image, text).robin_hood, 2), round(cg.cross_hubs(image + 1, text).robin_hood, 2)
        (0.11, 0.51)
    """
    queries = one_of(queries, "queries", ("image", "text"))
    k = whole_number(k, "k", of=", of neighbors")
    sets = dict(zip(("image", "text"), as_two_matrices(image, text, ("image", "text")), strict=True))
    for name, rows in sets.items():
        if rows.shape[1] < 2:
            raise InputError(f"{name} has 1 column; expected at least 2")
        sets[name] = unit_rows(rows, name=name)
        require_spread(sets[name], name=name)
    found = sets.pop("text" if queries == "image" else "image")
    if len(found) < k:
        what = "text" if queries == "image" else "image"
        raise InputError(f"{what} has {len(found)} rows; expected at least {k} for k = {k} neighbors, or a smaller k")
    return _of_counts(nearest(sets[queries], k, y=found)[1], len(found))


def _of_counts(found: Int[Tensor, "n k"], rows: int) -> Hubs:
    counts = torch.bincount(found.flatten(), minlength=rows).double()
    return Hubs((counts - counts.mean()).abs().sum() / (2 * counts.sum()), (counts == 0).double().mean())


_ROBIN_HOOD = Measure(
    name="robin_hood",
    depends_on_n=True,
    better="lower",
    streams=True,
    title="Robin Hood index",
    brief="share of the results that hubs take from other rows",
    group="neighbors",
    function=hubs,
    attribute="robin_hood",
    takes="rows",
    summary="The share of the places among the ten nearest that had to pass to other rows for all to be found equally "
    "often.",
    reading="0 means that all rows are found equally often; 0.5 that half of all results would have to go to other "
    "rows. Unlike the skewness of `hubness` it is bounded, and one extreme hub does not decide it.",
    caveat="Noise has more than 0, about 0.12, and the more the higher the dimension and n: compare equal n and k "
    "only, beside the null value. Copies of a row fill each other's lists.",
    formula="½ Σ_i |N_i − k|/Σ_i N_i, N_i how often row i is among the k = 10 nearest, by cosine",
    range=(0, 1),
    direction="lower serves retrieval better",
    at_gaussian=None,
    invariances=("rotation", "scale", "row scale"),
    least_n=11,
    least_d=2,
    quadratic=True,
    smooth=False,
    reference="Feldbauer et al. 2018, doi:10.1109/ICBK.2018.00055; Hoover 1936",
)
_ANTIHUBS = replace(
    _ROBIN_HOOD,
    name="antihub_share",
    title="Share of anti-hubs",
    brief="share of the rows that no other row finds",
    attribute="antihub_share",
    summary="The share of the rows that are among the ten nearest of no other row.",
    reading="0 means that every row can be found by its neighbors; anti-hubs are in the index and in no result.",
    caveat="It falls with k: an anti-hub of ten neighbors may be found among fifty. It rises with n and with the "
    "dimension, of noise too: compare equal n and k only, and read it beside the null value.",
    formula="share of the rows i with N_i = 0, N_i how often row i is among the k = 10 nearest, by cosine",
    reference="Radovanović et al. 2010, JMLR 11:2487",
)
add_measure(_ROBIN_HOOD)
add_measure(_ANTIHUBS)
for _queries, _found in (("image", "text"), ("text", "image")):
    _across = {
        "function": cross_hubs,
        "options": {"queries": _queries},
        "takes": "two sets",
        "streams": True,
        "least_n": 10,
        "by_default": False,
    }
    _counts = f"N_j how often {_found} j is among the k = 10 nearest of {_queries}s, by cosine"
    _caveat = (
        "It says how evenly rows are found, not whether by the right queries: random results are the most even. It "
        "rises with n: compare equal n and k only."
    )
    add_measure(
        variant(
            _ROBIN_HOOD,
            f"{_queries}_to_{_found}",
            title=f"Robin Hood index, {_queries} to {_found}",
            brief=f"share of {_queries}-to-{_found} results that hubs take",
            summary=f"The share of the places among the ten nearest {_found}s of {_queries}s that had to pass to other "
            f"{_found}s for all to be found equally often.",
            reading=f"0 means that all {_found}s are found equally often; 0.5 that half of all results would have to "
            f"go to other {_found}s.",
            caveat=_caveat,
            formula=f"½ Σ_j |N_j − mean N|/Σ_j N_j, {_counts}",
            **_across,
        ),
        variant(
            _ANTIHUBS,
            f"{_queries}_to_{_found}",
            title=f"Share of anti-hubs, {_queries} to {_found}",
            brief=f"share of the {_found}s that no {_queries} finds",
            summary=f"The share of the {_found}s that are among the ten nearest of no {_queries}.",
            reading=f"0 means that every {_found} can be found by some {_queries}; an anti-hub is in no result.",
            caveat=_caveat,
            formula=f"share of the {_found}s j with N_j = 0, {_counts}",
            **_across,
        ),
    )
