"""Retrieval of the pair among the other modality, or in one index of both; exact, in blocks, for any n."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clip_geometry.evaluators.base import add_evaluator, share
from clip_geometry.evaluators.shares import Effects, Share
from clip_geometry.geometry.distances.distinct import entries_at_a_time
from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.geometry.distances.pairwise import single_is_exact
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import members, one_of, whole_number
from clip_geometry.rows.matrix import Rows, as_aligned, as_rows, as_two_sets, mean_row, unit_rows

if TYPE_CHECKING:
    Index: TypeAlias = Literal["cross", "mixed"]
    Pairs: TypeAlias = Tensor | np.ndarray | Sequence[Sequence[int]]
else:  # so that anything else is an InputError, not one of a type checker
    Index = Any
    Pairs = Any

EPS = torch.finfo(torch.float64).eps
SINGLE_EPS = torch.finfo(torch.float32).eps
DENSE = 64  # from one open comparison in 64 on, products of all digits are faster than differences of these
TIE = 4 * EPS  # cosines of unit rows that differ by less are equal: the rows themselves are rounded


@in_kind
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
    """Measure how often a query finds its pair among the k rows of highest cosine, in both directions.

    A row may have several pairs, as an image has five captions. Then every row is a query, all rows are searched, and
    a query is right if it finds any of its pairs, whose others are skipped: the convention of CLIP_benchmark. Ties
    count against the query, whatever the order of the rows: a row as near as the pair precedes it, and one of the
    query's own modality precedes one of the other; so copies of a caption cost the ranks below their number, and rows
    that all coincide give 0. Cosines within 4 ε count as equal; those nearer than a product can distinguish are
    computed from differences. Memory: copies of the rows and blocks of block_size².

    Args:
        image: (n, d) rows, n ≥ 2.
        text: (m, d) rows, aligned with the images unless there are `pairs`.
        pairs: (2, p) rows of image and of text that belong together, each row in at least one pair; None pairs row i
            with row i.
        k: One or several ranks, 1 ≤ K < n and m.
        index: "cross" searches the other modality; "mixed" searches one index of all rows, except the query itself.
        block_size: Rows and columns of cosines computed at a time.

    Returns:
        image_to_text.r_at_K for each K (the share of queries whose pair has rank ≤ K, higher is better; chance with one
        pair is K/n, mixed K/(2n − 1)), image_to_text.median_rank (from 1), and text_to_image likewise. For
        index="mixed" also image.same_modality_at_K and text.same_modality_at_K: the mean share of the query's own
        modality in its top K, about (n − 1)/(2n − 1) without a modality gap.

    Raises:
        InputError: For zero rows, sets of unequal length without pairs, rows without a pair and K out of range.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import retrieval
        >>> rng = np.random.default_rng(0)
        >>> image = rng.normal(size=(6, 4))
        >>> text = image + 0.3 * rng.normal(size=(6, 4))
        >>> retrieval(image, text, k=1)["image_to_text.r_at_1"]
        1.0
        >>> retrieval(image, text + 5, k=1, index="mixed")["image_to_text.r_at_1"]  # a modality gap
        0.0
    """
    index = one_of(index, "index", ("cross", "mixed"))
    image, text = (as_aligned if pairs is None else as_two_sets)(image, text, ("image", "text"))
    n, given, block_size = min(len(image), len(text)), members(k), whole_number(block_size, "block_size")
    given = [k] if given is None else given
    tops = [whole_number(top, "k", most=n - 1, of=f", below the {n} pairs") for top in given]
    if not tops:
        raise InputError("k is empty; expected ranks such as (1, 5, 10)")
    i = j = torch.arange(n, device=image.device)
    if pairs is not None:
        try:
            numbers = torch.tensor([members(each) for each in members(pairs) or ()], device=image.device)
        except (TypeError, ValueError, RuntimeError):  # ragged, or no numbers
            numbers = image
        if numbers.dtype != torch.long or numbers.ndim != 2 or len(numbers) != 2:
            raise InputError("pairs are no two lists of equally many row numbers, those of images and those of texts")
        for each, rows, name in zip(numbers, (image, text), ("image", "text"), strict=True):
            if not torch.equal(each.unique(), torch.arange(len(rows), device=rows.device)):
                raise InputError(f"pairs do not name each of the {len(rows)} {name} rows, by its number from 0 on")
        i, j = numbers
    u, v = unit_rows(image, name="image"), unit_rows(text, name="text")
    averages = {}
    for key, values in _by_query(u, v, i, j, tops, index, block_size).items():
        averages[key] = share(values) if values.dtype == torch.bool else float(values.double().mean())
        if key.endswith("median_rank"):
            averages[key] = float(values.double().quantile(0.5))
    return averages


def _ways(
    u: Tensor, v: Tensor, i: Tensor, j: Tensor
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor, str, str], tuple[Tensor, Tensor, Tensor, Tensor, str, str]]:
    """Queries, the rows of the other modality, the pairs of both, the modality of the queries and the direction."""
    return (u, v, i, j, "image", "image_to_text"), (v, u, j, i, "text", "text_to_image")


def _by_query(
    u: Float[Tensor, "n d"],
    v: Float[Tensor, "m d"],
    i: Int[Tensor, " p"],
    j: Int[Tensor, " p"],
    tops: Sequence[int],
    index: Index,
    block_size: int,
) -> dict[str, Tensor]:
    """Return the values of each query, of which a number is the mean or the median."""
    found = {}
    for own, other, mine, theirs, name, way in _ways(u, v, i, j):
        pair = other[_nearest_pair(own, other, mine, theirs)]
        ranks = 1 + _ahead(own, pair, other, mine, theirs, block_size)
        if index == "mixed":
            itself = torch.arange(len(own), device=own.device)
            ranks += _ahead(own, pair, own, itself, itself, block_size)
        found |= {f"{way}.r_at_{top}": ranks <= top for top in tops}
        found[f"{way}.median_rank"] = ranks
        if index == "mixed":
            most = max(tops)
            same = (_nearest_rows(own, other, most) < len(own)).double()
            found |= {f"{name}.same_modality_at_{top}": same[:, :top] for top in tops}
    return found


def _nearest_rows(own: Float[Tensor, "n d"], other: Float[Tensor, "m d"], most: int) -> Int[Tensor, "n k"]:
    """Return the nearest rows of either modality, nearest first, numbered with the own modality first.

    There are at least `most` where there are so many. Distances of unit rows order like their cosines, and the own
    modality comes first among equal ones.
    """
    near = nearest(own, min(most, len(own) - 1)), nearest(own, min(most, len(other)), y=other)
    order = torch.cat([distances for distances, _ in near], dim=1).argsort(dim=1, stable=True)
    rows = torch.cat([near[0][1], near[1][1] + len(own)], dim=1)
    return rows.gather(1, order)[:, :most]


@torch.no_grad()
def _shares(
    image: Rows,
    text: Rows,
    pairs: Any = None,
    *,
    items: tuple[Int[Tensor, " n"], Int[Tensor, " m"]] | None = None,
    index: Index = "cross",
    block_size: int = 1024,
) -> dict[str, Share]:
    """Return the numbers of `retrieval` that are means, with the effect of each item on the queries of all others.

    items: of the rows; rows without pairs are one item each. Leaving an item out removes all of its rows.
    """
    u, v = unit_rows(as_rows(image), name="image"), unit_rows(as_rows(text), name="text")
    i = j = torch.arange(len(u), device=u.device)
    if pairs is not None:
        i, j = torch.as_tensor(np.asarray(pairs), device=i.device).long()
    one, two = (each.to(u.device) for each in items) if items is not None else (i, j)
    tops = [top for top in RANKS if top < min(len(u), len(v))]
    found = _by_query(u, v, i, j, tops, index, block_size)
    shares = {}
    for own, other, mine, theirs, name, way in _ways(u, v, i, j):
        of_own, of_other = (one, two) if name == "image" else (two, one)
        numbers = torch.cat([of_own, of_other]) if index == "mixed" else of_other
        most_rows = int(torch.bincount(numbers[numbers >= 0], minlength=1).max())  # of one item
        reach = max(tops) + min(most_rows, MOST_ROWS)
        pairs_each = int(torch.bincount(mine).max())
        if index == "mixed":
            near = _nearest_rows(own, other, reach + pairs_each)
        else:
            near = nearest(own, min(reach + pairs_each, len(other)), y=other)[1]
        # an item has no effect on its own queries, which go with it; class prompts (−1) never go
        near_items = torch.where(numbers[near] == of_own[:, None], -1, numbers[near])
        if index == "mixed":
            for top in tops:
                key = f"{name}.same_modality_at_{top}"
                shares[key] = Share(found[key].mean(1), of_own, _effects_on_share(near < len(own), near_items, top))
        first_other = len(own) if index == "mixed" else 0
        own_pairs = torch.isin(
            torch.arange(len(own), device=near.device)[:, None] * (len(numbers) + 1) + near,
            mine * (len(numbers) + 1) + theirs + first_other,
        )
        order = own_pairs.long().argsort(dim=1, stable=True)  # the pairs of a query are not in its way
        ahead = found[f"{way}.median_rank"] - 1
        rivals = near_items.gather(1, order)
        for top in tops:
            key = f"{way}.r_at_{top}"
            shares[key] = Share(found[key].double(), of_own, _effects_on_recall(ahead, rivals, top, most_rows))
    return shares


def _effects_on_recall(ahead: Int[Tensor, " n"], items: Int[Tensor, "n k"], top: int, most_rows: int) -> Effects:
    """Return which misses become hits without an item: those where no `top` rows of others are ahead of the pair.

    items: of the nearest rows, the first of which are those ahead of the pair.
    """
    near_misses = ((ahead >= top) & (ahead < top + most_rows) & (ahead <= items.shape[1])).nonzero()[:, 0]
    ahead, items = ahead[near_misses], items[near_misses]
    in_the_way = (torch.arange(items.shape[1], device=items.device) < ahead[:, None]) & (items >= 0)
    alike = (items[:, :, None] == items[:, None, :]) & in_the_way[:, None, :]
    found = in_the_way & _first(items) & (ahead[:, None] - alike.sum(2) < top)
    query, place = found.nonzero(as_tuple=True)
    return Effects(near_misses[query], items[query, place], torch.ones(len(query), dtype=torch.float64))


def _effects_on_share(same: Bool[Tensor, "n k"], items: Int[Tensor, "n k"], top: int) -> Effects:
    """Return how the share of the own modality in the top rows changes without an item, whose places the next take."""
    before = same[:, :top].double().mean(1)
    found = _first(items)[:, :top] & (items[:, :top] >= 0)
    query, place = found.nonzero(as_tuple=True)
    kept = items[query] != items[query, place][:, None]
    kept &= kept.cumsum(1) <= top
    changes = (kept & same[query]).sum(1).double() / kept.sum(1) - before[query]
    return Effects(query, items[query, place], changes)


def _first(items: Int[Tensor, "n k"]) -> Bool[Tensor, "n k"]:
    """Return where an item stands for the first time in its line."""
    earlier = torch.ones(items.shape[1], items.shape[1], dtype=torch.bool, device=items.device).tril(-1)
    return ~((items[:, :, None] == items[:, None, :]) & earlier).any(2)


def _nearest_pair(
    query: Float[Tensor, "n d"], rows: Float[Tensor, "m d"], i: Int[Tensor, " p"], j: Int[Tensor, " p"]
) -> Int[Tensor, " n"]:
    """Return for each query the row of highest cosine among its pairs."""
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
    """Return for each query the number of rows with ⟨q, row⟩ ≥ ⟨q, pair of q⟩, except the rows j_k of query i_k.

    Products about the mean of the rows keep the digits that differ. What they cannot distinguish from a tie is computed
    as ⟨q, row − pair⟩, whose rounding is relative to the difference. Float32 products come first; float64 ones take
    their place in blocks where they leave too much open.
    """
    mean, d = mean_row(rows), rows.shape[1]
    longest_row = torch.stack([(block - mean).norm(dim=1).amax() for block in rows.split(block_size)]).amax()
    # of ⟨q_i, c_j⟩ − ⟨q_i, w_i⟩ relative to ‖c_j‖ + ‖w_i‖, at most; ⟨q_i, w_i⟩ is float64
    roundings = {torch.float32: (d / 2 + 16) * SINGLE_EPS} if single_is_exact(rows.device) else {}
    roundings[torch.float64] = (2 * d + 16) * EPS
    counts = torch.zeros(len(query), dtype=torch.long, device=query.device)
    for mine in torch.arange(len(query), device=query.device).split(block_size):
        queries, wanted = query[mine], pair[mine] - mean
        longest, least = wanted.norm(dim=1) + longest_row, (queries * wanted).sum(1)
        out = (mine[0] <= i) & (i <= mine[-1])
        left_out = i[out] - mine[0], j[out]
        for theirs in torch.arange(len(rows), device=query.device).split(block_size):
            here = (theirs[0] <= left_out[1]) & (left_out[1] <= theirs[-1])
            columns = rows[theirs[0] : theirs[-1] + 1] - mean
            kinds = iter(roundings.items())
            while True:
                kind, rounding = next(kinds)
                reach = TIE + rounding * longest
                lower, upper = (bound.to(kind)[:, None] for bound in (least - reach, least + reach))
                products = queries.to(kind) @ columns.to(kind).T
                products[left_out[0][here], left_out[1][here] - theirs[0]] = -torch.inf
                ahead = products > upper
                a, b = ((products >= lower) ^ ahead).nonzero(as_tuple=True)
                if len(a) <= ahead.numel() // DENSE or kind == torch.float64:
                    break
            counts[mine] += ahead.sum(1)
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
    """Return ⟨q_i, rows_j − pair_i⟩ for the pairs (i, j)."""
    leads = query.new_empty(len(i))
    step = max(1, entries_at_a_time(query.device) // query.shape[1])
    for part in torch.arange(len(i), device=query.device).split(step):
        leads[part] = (query[i[part]] * (rows[j[part]] - pair[i[part]])).sum(1)
    return leads


WAYS = {"image_to_text": ("text", "image"), "text_to_image": ("image", "text")}  # (what is found, of what)
RANKS = (1, 5, 10)
MOST_ROWS = 20  # of one item whose effect is computed exactly
ASKED = 100  # queries that a remark looks at
MANY = 0.1  # share of queries with ties from which on they are remarked on
_AN = {"image": "an image", "text": "a text"}


def _queries(image: Rows, text: Rows, pairs: Any = None) -> str | None:
    """The remark of every number."""
    several = f"{len(image)} images and {len(text)} texts are queries, each right where it finds any of its pairs"
    return None if pairs is None else several


@torch.no_grad()
def _queries_and_ties(way: str, image: Rows, text: Rows, pairs: Any = None) -> str | None:
    """The remark of ranks: also how many queries have other rows exactly as near as their pair, of ASKED queries, since
    each takes O(nd)."""
    u, v = unit_rows(as_rows(image), name="image"), unit_rows(as_rows(text), name="text")
    i = j = torch.arange(len(u), device=u.device)
    if pairs is not None:
        i, j = torch.as_tensor(np.asarray(pairs), device=u.device).long()
    own, other, mine, theirs, name, _ = next(each for each in _ways(u, v, i, j) if each[-1] == way)
    asked = torch.linspace(0, len(own) - 1, min(len(own), ASKED), device=u.device).long()
    pair, mean = other[_nearest_pair(own, other, mine, theirs)][asked], mean_row(other)
    centered, wanted = other - mean, pair - mean
    leads = own[asked] @ centered.T - (own[asked] * wanted).sum(1)[:, None]
    reach = TIE + (2 * u.shape[1] + 16) * EPS * (wanted.norm(dim=1) + centered.norm(dim=1).amax())
    as_near = leads.abs() <= reach[:, None]
    place = torch.full((len(own),), -1, device=u.device).index_put_((asked,), torch.arange(len(asked), device=u.device))
    known = place[mine] >= 0
    as_near[place[mine[known]], theirs[known]] = False  # a pair itself is no tie
    tied = int(as_near.any(1).sum())
    said = (
        f"{tied} of {len(asked)} {name} queries looked at have other rows exactly as near as their pair, and ties "
        "count against the query"
    )
    return "; ".join(filter(None, (_queries(image, text, pairs), said if tied > MANY * len(asked) else None))) or None


_RANKS = {
    f"{way}.{number}": {"remark": partial(_queries_and_ties, way)}
    for way in WAYS
    for number in ("r_at_1", "r_at_5", "r_at_10", "median_rank")
}
_CROSS = Measure("retrieval", retrieval, remark=_queries, shares=_shares)
add_evaluator(_CROSS, _RANKS)
add_evaluator(replace(_CROSS, name="retrieval[mixed]", options={"index": "mixed"}), _RANKS)
