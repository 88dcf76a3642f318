"""Retrieval of the pair: among the other modality, or in one index of both. Exact, in blocks, for any n."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.evaluators.accuracy import share
from clip_geometry.evaluators.base import add_evaluator
from clip_geometry.geometry._core.arguments import members, one_of, whole_number
from clip_geometry.geometry._core.distinct import entries_at_a_time
from clip_geometry.geometry._core.neighbours import nearest
from clip_geometry.geometry._core.rows import Rows, as_aligned, as_two_sets, mean_row, unit_rows
from clip_geometry.geometry.measure import Measure
from clip_geometry.registry import InputError

if TYPE_CHECKING:
    import numpy

    Index: TypeAlias = Literal["cross", "mixed"]
    Pairs: TypeAlias = Tensor | numpy.ndarray | Sequence[Sequence[int]]
else:  # what is not of these is our sentence, not a type checker's
    Index = Any
    Pairs = Any

EPS = torch.finfo(torch.float64).eps
TIE = 4 * EPS  # cosines of unit rows that differ by less are equal: the rows themselves are rounded


@torch.no_grad()
def retrieval(
    image: Rows,
    text: Rows,
    pairs: Pairs | None = None,
    *,
    k: int | Iterable[int] = (1, 5, 10),
    index: Index = "cross",
    block_size: int = 1024,
) -> dict[str, float]:
    """How often a query finds its pair among the k rows of highest cosine, both ways.

    index="cross": images among texts and texts among images. image_to_text.r_at_K for each K in k (R@K, the share of
    queries whose pair has rank ≤ K), image_to_text.median_rank (from 1), and text_to_image likewise.
    index="mixed": one index of all 2n rows, the query itself excluded; the same names, and image.same_modality_at_K,
    text.same_modality_at_K: the mean share of the query's own modality in its top K.

    image, text: (n, d) aligned rows, n ≥ 2, or with pairs (n, d) and (m, d); k: one or several, 1 ≤ K < n and m.
    pairs: (2, p) rows of image and of text that belong together, each row in one pair at least; None: row i with row i.
    Where a row has several, as an image has five captions, every row is a query, all rows are searched, and a query is
    right where it finds any of its pairs, whose others are passed over: the convention of CLIP_benchmark.
    R@K: higher is better, chance of one pair is K/n (K/(2n − 1) mixed). same_modality_at_K in [0, 1], about
    (n − 1)/(2n − 1) without a modality gap. Ties are counted against the query, whatever the order of the rows: a row
    as near as the pair comes before it, and one of the query's own modality before one of the other; so copies of a
    caption cost the ranks below their number, and rows that all coincide give 0. Cosines within 4 ε count as equal;
    nearer ones than a product can tell are taken from differences. Memory: copies of the rows and blocks of
    block_size². Raises InputError for zero rows, unequal sets without pairs, rows without one and K out of range.
    """
    index = one_of(index, "index", ("cross", "mixed"))
    image, text = (as_aligned if pairs is None else as_two_sets)(image, text, ("image", "text"))
    tops, block_size = _as_ranks(k, min(len(image), len(text))), whole_number(block_size, "block_size")
    i, j = _as_pairs(pairs, image, text)
    u, v = unit_rows(image, name="image"), unit_rows(text, name="text")
    found = {}
    ways = ((u, v, i, j, "image", "image_to_text"), (v, u, j, i, "text", "text_to_image"))
    for own, other, mine, theirs, name, way in ways:
        pair = other[_nearest_pair(own, other, mine, theirs)]
        ranks = 1 + _ahead(own, pair, other, mine, theirs, block_size)
        if index == "mixed":
            itself = torch.arange(len(own), device=own.device)
            ranks += _ahead(own, pair, own, itself, itself, block_size)
        found |= {f"{way}.r_at_{top}": share(ranks <= top) for top in tops}
        found[f"{way}.median_rank"] = float(ranks.double().quantile(0.5))
        if index == "mixed":
            found |= _own_modality(own, other, tops, name)
    return found


def _as_ranks(k: Any, n: int) -> list[int]:
    """The ranks asked for: one, or several."""
    given = members(k)
    tops = [
        whole_number(top, "k", most=n - 1, of=f", below the {n} pairs") for top in ([k] if given is None else given)
    ]
    if not tops:
        raise InputError("k is empty; expected ranks such as (1, 5, 10)")
    return tops


def _as_pairs(pairs: Any, image: Tensor, text: Tensor) -> tuple[Int[Tensor, " p"], Int[Tensor, " p"]]:
    """The pairs as rows of images and of texts, those of an image one after the other."""
    if pairs is None:
        own = torch.arange(len(image), device=image.device)
        return own, own
    try:
        given = torch.tensor([members(each) for each in members(pairs) or ()], device=image.device)
    except (TypeError, ValueError, RuntimeError):  # ragged, or no numbers
        given = image
    if given.dtype != torch.long or given.ndim != 2 or len(given) != 2:
        raise InputError("pairs are no two lists of equally many row numbers, those of images and those of texts")
    for numbers, rows, name in zip(given, (image, text), ("image", "text"), strict=True):
        if not torch.equal(numbers.unique(), torch.arange(len(rows), device=rows.device)):
            raise InputError(f"pairs do not name each of the {len(rows)} {name} rows, by its number from 0 on")
    return given[0], given[1]


def _nearest_pair(
    query: Float[Tensor, "n d"], rows: Float[Tensor, "m d"], i: Int[Tensor, " p"], j: Int[Tensor, " p"]
) -> Int[Tensor, " n"]:
    """For each query the row of highest cosine among those that it is paired with."""
    some = torch.empty(len(query), dtype=torch.long, device=query.device).index_put_((i,), j)
    if len(i) == len(query):
        return some
    order = _leads_of_pairs(query, rows[some], rows, i, j).argsort(descending=True)
    order = order[i[order].argsort(stable=True)]
    firsts = torch.searchsorted(i[order], torch.arange(len(query), device=query.device))
    return j[order[firsts]]


def _ahead(
    query: Float[Tensor, "n d"],
    pair: Float[Tensor, "n d"],
    rows: Float[Tensor, "m d"],
    i: Int[Tensor, " p"],
    j: Int[Tensor, " p"],
    block_size: int,
) -> Int[Tensor, " n"]:
    """For each query the number of rows with ⟨q, row⟩ ≥ ⟨q, pair of q⟩, but for the row j_k where the query is i_k.

    Products about the mean of the rows keep the digits that differ. What they cannot tell from a tie is taken from
    ⟨q, row − pair⟩, whose rounding is relative to the difference.
    """
    mean = mean_row(rows)
    centred, wanted = rows - mean, pair - mean
    lengths, wanted_lengths = centred.norm(dim=1), wanted.norm(dim=1)
    rounding = (2 * rows.shape[1] + 16) * EPS  # of ⟨q_i, c_j⟩ − ⟨q_i, w_i⟩ relative to ‖c_j‖ + ‖w_i‖, at most
    least = (query * wanted).sum(1)
    counts = torch.zeros(len(query), dtype=torch.long, device=query.device)
    for mine in torch.arange(len(query), device=query.device).split(block_size):
        out = (mine[0] <= i) & (i <= mine[-1])
        left_out = i[out] - mine[0], j[out]
        for theirs in torch.arange(len(rows), device=query.device).split(block_size):
            leads = query[mine] @ centred[theirs].T - least[mine, None]
            here = (theirs[0] <= left_out[1]) & (left_out[1] <= theirs[-1])
            leads[left_out[0][here], left_out[1][here] - theirs[0]] = -torch.inf
            unsure = leads.abs() <= TIE + rounding * (wanted_lengths[mine, None] + lengths[theirs])
            counts[mine] += ((leads > 0) & ~unsure).sum(1)
            a, b = unsure.nonzero(as_tuple=True)
            tied = _leads_of_pairs(query, pair, rows, mine[a], theirs[b]) >= -TIE
            counts.index_add_(0, mine[a], tied.long())
    return counts


def _leads_of_pairs(
    query: Float[Tensor, "n d"],
    pair: Float[Tensor, "n d"],
    rows: Float[Tensor, "m d"],
    i: Int[Tensor, " p"],
    j: Int[Tensor, " p"],
) -> Float[Tensor, " p"]:
    """⟨q_i, rows_j − pair_i⟩ of the pairs (i, j)."""
    leads = query.new_empty(len(i))
    step = max(1, entries_at_a_time(query.device) // query.shape[1])
    for part in torch.arange(len(i), device=query.device).split(step):
        leads[part] = (query[i[part]] * (rows[j[part]] - pair[i[part]])).sum(1)
    return leads


def _own_modality(
    own: Float[Tensor, "n d"], other: Float[Tensor, "m d"], k: Sequence[int], name: str
) -> dict[str, float]:
    """Share of the own modality among the top K of both: distances of unit rows order as their cosines do."""
    most = max(k)
    mine, _ = nearest(own, most)
    theirs, _ = nearest(own, most, y=other)
    order = torch.cat([mine, theirs], dim=1).argsort(dim=1, stable=True)  # the own come first where they tie
    return {f"{name}.same_modality_at_{top}": float((order[:, :top] < most).double().mean()) for top in k}


def _several(image: Rows, text: Rows, pairs: Pairs | None = None) -> str | None:
    if pairs is None:
        return None
    return f"{len(image)} images and {len(text)} texts are queries, each right where it finds any of its pairs"


WAYS = {"image_to_text": ("text", "image"), "text_to_image": ("image", "text")}  # (what is found, of what)
RANKS = (1, 5, 10)
_AN = {"image": "an image", "text": "a text"}


def _numbers(where: str, kind: str = "") -> dict[str, dict[str, Any]]:
    found = {}
    for way, (pair, query) in WAYS.items():
        for top in RANKS:
            found[f"{way}.r_at_{top}"] = {
                "title": f"{kind}R@{top}, the {pair} of {_AN[query]}",
                "summary": f"The share of {query} queries whose {pair} is among the {top} nearest rows {where}.",
            }
        found[f"{way}.median_rank"] = {
            "title": f"{kind}Median rank, the {pair} of {_AN[query]}",
            "summary": f"Half of the {query} queries find their {pair} at this rank or before it, {where}.",
            "range": (1, float("inf")),
            "direction": "lower retrieves better",
            "smooth": False,
        }
    return found


_CROSS = Measure(
    name="retrieval",
    title="Retrieval",
    group="retrieval",
    function=retrieval,
    takes="matched sets",
    remark=_several,
    summary="How often a query finds its pair among the nearest rows of the other modality, by cosine.",
    reading="1 means that every query finds its pair; chance is k/n.",
    trap="It falls as n grows: compare equal n only. A right answer that is not the pair counts as wrong.",
    formula="share of queries with rank(nearest pair) ≤ k, ties against the query",
    range=(0, 1),
    direction="higher retrieves better",
    at_gaussian=None,
    invariances=("rotation", "scale", "row scale"),
    least_n=11,
    quadratic=True,
    reference="standard; as in Radford et al. 2021, arXiv:2103.00020",
)
_MIXED = replace(
    _CROSS,
    name="retrieval[mixed]",
    summary="The same in one index of both modalities, the query itself excluded.",
    reading="Where a modality gap keeps the own modality first, R@k is 0 although cross-modal retrieval works.",
    trap="A map fitted on the very pairs that are retrieved mends it in appearance only: fit on other pairs.",
    options={"index": "mixed"},
)
_OWN = {
    f"{modality}.same_modality_at_{top}": {
        "title": f"Own modality in the top {top}, {modality} query",
        "summary": f"The share of {modality}s among the {top} rows nearest to {_AN[modality]}, in one index of both.",
        "reading": "1 means that a mixed index answers in the query's own modality only; about 1/2 is even.",
        "formula": f"mean share of rows of the query's modality in its top {top}",
        "direction": "near 1/2 is more even",
    }
    for modality in ("image", "text")
    for top in RANKS
}
add_evaluator(_CROSS, _numbers("of the other modality"))
add_evaluator(_MIXED, _numbers("of both modalities", "Mixed index: ") | _OWN)
