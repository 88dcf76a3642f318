"""Exact retrieval of pairs, from the other modality or from one index of both, in blocks for any number of rows."""

from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clip_geometry.evaluate.base import Effects, Share, add_evaluator, share
from clip_geometry.geometry.distances.nearest import count_nearer, nearest, nearest_both_ways
from clip_geometry.geometry.distances.pairwise import entries_at_a_time, squared_distances_of_pairs
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure
from clip_geometry.geometry.statistics import Statistic
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import flag, members, one_of, whole_number
from clip_geometry.rows.matrix import Rows, as_aligned, as_two_sets, as_unit_rows, mean_row

PAIR = ("image", "text")
Lists: TypeAlias = dict[tuple[str, str], tuple[Tensor, Tensor]]  # by modality of the queries and "own" or "other"
EPS = torch.finfo(torch.float64).eps
TIE = 4 * EPS  # cosines of unit rows that differ by less count as equal, since the rows themselves are rounded


@in_kind
@torch.no_grad()
def retrieval(
    image: "Rows | Search",
    text: Rows | None = None,
    pairs: Any = None,
    *,
    k: int | Iterable[int] = (1, 5, 10),
    index: str = "cross",
    median_rank: bool = True,
) -> dict[str, float]:
    """Return recall at K and median ranks of searches for matching pairs by cosine, in both directions.

    Every image is a query for its text, and every text for its image. A row may have several pairs, such as an image
    with five captions: a query then counts as correct if it finds any of them, and its other pairs are skipped, as in
    CLIP_benchmark.

    Ties count against the query: an item with the same cosine as the pair is ranked before it, whatever the order of
    the rows. So a caption that occurs c times has rank c or worse, and rows that all coincide have recall 0. Cosines
    within 4 ε count as equal, where ε is the rounding unit of the number type; cosines too close for a product to
    distinguish are computed from differences. The memory needed is a copy of the rows and blocks of cosines.

    Args:
        image: (n, d) rows, n ≥ 2; or a precomputed `Search` in place of image, text and pairs.
        text: (m, d) rows, aligned with the images unless `pairs` is given.
        pairs: (2, p) row numbers of the images and of the texts that belong together, where each row occurs at least
            once. None pairs row i with row i.
        k: One or several ranks K, 1 ≤ K < n and m.
        index: "cross" searches the rows of the other modality. "mixed" searches all rows of both modalities, except the
            query itself.
        median_rank: Whether to compute the median ranks, which takes longer because it needs the rank of every pair.

    Returns:
        A dictionary of floats. image_to_text.r_at_K for each K is the share of image queries whose pair has rank ≤ K,
        in [0, 1]; higher is better, and chance with one pair is K/n, or K/(2n − 1) for "mixed".
        image_to_text.median_rank is at least 1; lower is better. The same for text_to_image. For index="mixed",
        image.same_modality_at_K and text.same_modality_at_K are the mean share of the query's own modality among the
        first K results, which is about (n − 1)/(2n − 1) without a modality gap.

    Raises:
        InputError: A row is zero, the sets differ in length without `pairs`, a row has no pair, or K is out of range.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.evaluate import retrieval
        >>> rng = np.random.default_rng(0)
        >>> image = rng.normal(size=(6, 4))
        >>> text = image + 0.3 * rng.normal(size=(6, 4))
        >>> retrieval(image, text, k=1)["image_to_text.r_at_1"]
        1.0
        >>> retrieval(image, text + 5, k=1, index="mixed")["image_to_text.r_at_1"]  # a modality gap
        0.0
    """
    index = one_of(index, "index", ("cross", "mixed"))
    search = Search.of(image, text, pairs)
    n = search.n
    given_ranks = members(k)
    if given_ranks is None:
        given_ranks = [k]
    tops = [whole_number(top, "k", most=n - 1, of=f", below the {n} pairs") for top in given_ranks]
    if not tops:
        raise InputError("k is empty; expected ranks such as (1, 5, 10)")
    numbers = {}
    needs_all = flag(median_rank, "median_rank")
    for direction in search.directions:
        ahead = direction.all_ahead(index) if needs_all else direction.ahead(index, max(tops))
        numbers |= {f"{direction.name}.r_at_{top}": share(ahead < top) for top in tops}
        if needs_all:
            numbers[f"{direction.name}.median_rank"] = float((1 + ahead).double().quantile(0.5))
        if index == "mixed":
            same = direction.same_modality(max(tops))
            numbers |= {f"{direction.modality}.same_modality_at_{top}": float(same[:, :top].mean()) for top in tops}
    return numbers


class Search(Statistic):
    """The nearest rows of every query in both directions, on which all numbers of `retrieval` are based.

    Attributes:
        n: Number of rows of the smaller set.
        directions: The searches from images to texts and from texts to images.
    """

    def __init__(self, image: Rows, text: Rows, pairs: Any = None):
        checked = as_aligned if pairs is None else as_two_sets
        image, text = checked(image, text, PAIR)
        self.n = min(len(image), len(text))
        self._pairs = pairs
        self._rows: Any = image, text

    def check_pairs(self) -> tuple[Int[Tensor, " p"], Int[Tensor, " p"]]:
        """Return the row numbers of the pairs in both sets; raise InputError for invalid pairs."""
        image, text = self._rows
        if self._pairs is None:
            i = torch.arange(self.n, device=image.device)
            return i, i
        try:
            numbers = torch.tensor([members(indices) for indices in members(self._pairs) or ()], device=image.device)
        except (TypeError, ValueError, RuntimeError):  # ragged or not numeric
            numbers = image
        if numbers.dtype != torch.long or numbers.ndim != 2 or len(numbers) != 2:
            raise InputError(
                "pairs are not two lists of equally many row numbers; expected the row numbers of the images and those "
                "of the texts"
            )
        for indices, rows, name in zip(numbers, (image, text), PAIR, strict=True):
            if not torch.equal(indices.unique(), torch.arange(len(rows), device=rows.device)):
                raise InputError(
                    f"pairs do not name each of the {len(rows)} {name} rows; expected the number of each row, from 0 "
                    f"to {len(rows) - 1}, in at least one pair"
                )
        return numbers[0], numbers[1]

    @cached_property
    def directions(self) -> tuple["Direction", "Direction"]:
        i, j = self.check_pairs()
        image, text = self._rows
        u: Any = as_unit_rows(image, name="image")
        v: Any = as_unit_rows(text, name="text")
        lists: Lists = {}
        from_images = Direction("image", "image_to_text", u, v, i, j, lists)
        from_texts = Direction("text", "text_to_image", v, u, j, i, lists)
        return from_images, from_texts


class Direction:
    """The search of one modality's rows for their pairs.

    Args:
        modality: Modality of the queries.
        name: Name of the direction.
        queries: Unit rows of the queries.
        others: Unit rows of the other modality, which are searched.
        i, j: The pairs: query i_k belongs to row j_k.
        lists: A dictionary to be filled with the nearest rows of both directions, which come from the same products.
    """

    def __init__(self, modality: str, name: str, queries: Tensor, others: Tensor, i: Tensor, j: Tensor, lists: Lists):
        self.modality = modality
        self.name = name
        self.queries = queries
        self.others = others
        self.i, self.j = i, j
        self._lists = lists
        self._rounding = (6 * queries.shape[1] + 64) * EPS  # of leads: from lengths, squares, products

    @cached_property
    def pair(self) -> Float[Tensor, "n d"]:
        """For each query, the nearest of its pairs."""
        if torch.equal(self.i, self.j) and len(self.i) == len(self.queries) == len(self.others):
            return self.others  # not copied
        return self.others[_nearest_pair(self.queries, self.others, self.i, self.j)]

    @cached_property
    def most_pairs(self) -> int:
        """The largest number of pairs of one query."""
        return int(torch.bincount(self.i).max())

    def near(self, where: str, k: int) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
        """Return distances and numbers of the k nearest rows, nearest first, of the "own" or the "other" modality."""
        k = min(k, len(self.queries) - 1 if where == "own" else len(self.others))
        key = self.modality, where
        if key not in self._lists or self._lists[key][1].shape[1] < k:
            if where == "own":
                self._lists[key] = nearest(self.queries, k)
            else:  # the other direction will be requested next
                (other_modality,) = {*PAIR} - {self.modality}
                of_queries, of_others = nearest_both_ways(self.queries, self.others, k)
                self._lists[key] = of_queries
                self._lists[other_modality, where] = of_others
        distances, numbers = self._lists[key]
        return distances[:, :k], numbers[:, :k]

    def ahead(self, index: str, limit: int) -> Int[Tensor, " n"]:
        """Count for each query the rows, other than its pairs, that are as near as its pair.

        Counts below `limit` are exact; the others are at least `limit`.
        """
        distances, numbers = self.near("other", limit + self.most_pairs)
        counts = (self._are_ahead(self.others, distances, numbers) & ~self.are_pairs(numbers)).sum(1)
        if index == "mixed":
            counts = counts + self._are_ahead(self.queries, *self.near("own", limit)).sum(1)
        return counts

    @cached_property
    def _pair_squares(self) -> Float[Tensor, " n"]:
        """Squared distance from each query to its pair."""
        indices = torch.arange(len(self.queries), device=self.queries.device)
        return squared_distances_of_pairs(self.queries, self.pair, indices, indices)

    def _are_ahead(
        self, rows: Float[Tensor, "m d"], distances: Float[Tensor, "n k"], near: Int[Tensor, "n k"]
    ) -> Bool[Tensor, "n k"]:
        """Return which of the nearest rows are as near as the pair.

        They are compared by distances, or by differences if rounding could change the result.
        """
        leads = (self._pair_squares[:, None] - distances.square()) / 2  # ⟨q, row − pair⟩, since rows have unit length
        ahead = leads >= -TIE
        query, place = ((leads + TIE).abs() <= self._rounding).nonzero(as_tuple=True)
        ahead[query, place] = _leads_of_pairs(self.queries, self.pair, rows, query, near[query, place]) >= -TIE
        return ahead

    def are_pairs(self, near: Int[Tensor, "n k"]) -> Bool[Tensor, "n k"]:
        """Return which of these rows of the other modality are pairs of their queries."""
        n = len(self.others)
        query = torch.arange(len(near), device=near.device)[:, None]
        return torch.isin(query * n + near, self.i * n + self.j)

    @cached_property
    def _all_others_ahead(self) -> Int[Tensor, " n"]:
        paired = _leads_of_pairs(self.queries, self.pair, self.others, self.i, self.j) >= -TIE
        return self._all_ahead(self.others).index_add(0, self.i, paired.long(), alpha=-1)

    @cached_property
    def _all_own_ahead(self) -> Int[Tensor, " n"]:
        return self._all_ahead(None)

    def _all_ahead(self, rows: Float[Tensor, "m d"] | None) -> Int[Tensor, " n"]:
        """Count for each query all rows (None: the other queries) that are as near as its pair."""
        searched = self.queries if rows is None else rows
        # for unit rows, squared distances decrease by twice the leads; rounding errors double, too
        return count_nearer(
            self.queries,
            rows,
            self._pair_squares + 2 * TIE,
            lambda i, j: _leads_of_pairs(self.queries, self.pair, searched, i, j) >= -TIE,
            slack=2 * self._rounding,
        )

    def all_ahead(self, index: str) -> Int[Tensor, " n"]:
        """Count for each query the rows, other than its pairs, that are as near as its pair."""
        return self._all_others_ahead + (self._all_own_ahead if index == "mixed" else 0)

    def nearest_rows(self, k: int) -> Int[Tensor, "n k"]:
        """Return the numbers of the k nearest rows of either modality, nearest first.

        The query's own modality is numbered first. If fewer than k rows exist, all are returned. Distances of unit rows
        have the order of their cosines, and rows of the query's own modality come first among equal distances.
        """
        own_distances, own_numbers = self.near("own", k)
        other_distances, other_numbers = self.near("other", k)
        order = torch.cat([own_distances, other_distances], dim=1).argsort(dim=1, stable=True)
        rows = torch.cat([own_numbers, other_numbers + len(self.queries)], dim=1)
        return rows.gather(1, order)[:, :k]

    def same_modality(self, k: int) -> Float[Tensor, "n k"]:
        """Return 1 for each of the nearest rows of either modality that is of the query's own modality, otherwise 0."""
        return (self.nearest_rows(k) < len(self.queries)).double()


@torch.no_grad()
def _shares(
    image: Rows,
    text: Rows,
    pairs: Any = None,
    *,
    items: tuple[Int[Tensor, " n"], Int[Tensor, " m"]] | None = None,
    index: str = "cross",
    median_rank: bool = True,
) -> dict[str, Share]:
    """Return recall at k and, for a mixed index, the share of results of the query's modality, for every query.

    With them come the changes of the other queries' values if an item were removed from the index, which the jackknife
    needs. The arguments are those of `retrieval`, which also computes the median rank.

    items: item of each row of both sets; rows without pairs are one item each. Removing an item removes all of its
    rows.
    """
    search = Search(image, text, pairs)
    image_items, text_items = search.check_pairs()
    if items is not None:
        device = image_items.device
        image_items, text_items = items[0].to(device), items[1].to(device)
    tops = [top for top in RANKS if top < search.n]
    shares = {}
    for direction in search.directions:
        own_items, other_items = image_items, text_items
        if direction.modality == "text":
            own_items, other_items = text_items, image_items
        index_items = torch.cat([own_items, other_items]) if index == "mixed" else other_items
        most_rows = int(torch.bincount(index_items[index_items >= 0], minlength=1).max())  # of one item
        k = max(tops) + min(most_rows, MOST_ROWS) + direction.most_pairs
        near = direction.nearest_rows(k) if index == "mixed" else direction.near("other", k)[1]
        # an item has no effect on its own queries, which are removed with it; class prompts (−1) are never removed
        near_items = torch.where(index_items[near] == own_items[:, None], -1, index_items[near])
        first_other = len(direction.queries) if index == "mixed" else 0
        if index == "mixed":
            same = direction.same_modality(max(tops))
            for top in tops:
                effects = _effects_on_share(near < first_other, near_items, top)
                name = f"{direction.modality}.same_modality_at_{top}"
                shares[name] = Share(same[:, :top].mean(1), own_items, effects)
        own_pairs = direction.are_pairs(near - first_other) & (near >= first_other)
        order = own_pairs.long().argsort(dim=1, stable=True)  # moves the pairs of a query behind all other rows
        negatives = near_items.gather(1, order)
        ahead = direction.ahead(index, near.shape[1])
        for top in tops:
            effects = _effects_on_recall(ahead, negatives, top, most_rows)
            shares[f"{direction.name}.r_at_{top}"] = Share((ahead < top).double(), own_items, effects)
    return shares


def _effects_on_recall(ahead: Int[Tensor, " n"], items: Int[Tensor, "n k"], top: int, most_rows: int) -> Effects:
    """Return which misses become hits if an item is removed: those with fewer than `top` rows of other items ahead.

    items: items of the nearest rows; the rows ahead of the pair come first.
    """
    near_misses = ((ahead >= top) & (ahead < top + most_rows) & (ahead <= items.shape[1])).nonzero()[:, 0]
    ahead, items = ahead[near_misses], items[near_misses]
    in_the_way = (torch.arange(items.shape[1], device=items.device) < ahead[:, None]) & (items >= 0)
    same_item = (items[:, :, None] == items[:, None, :]) & in_the_way[:, None, :]
    decisive = in_the_way & _first(items) & (ahead[:, None] - same_item.sum(2) < top)
    query, place = decisive.nonzero(as_tuple=True)
    return Effects(near_misses[query], items[query, place], torch.ones(len(query), dtype=torch.float64))


def _effects_on_share(same: Bool[Tensor, "n k"], items: Int[Tensor, "n k"], top: int) -> Effects:
    """Return how the share of the own modality in the top rows changes when an item is removed and others move up."""
    before = same[:, :top].double().mean(1)
    removable = _first(items)[:, :top] & (items[:, :top] >= 0)
    query, place = removable.nonzero(as_tuple=True)
    kept = items[query] != items[query, place][:, None]
    kept &= kept.cumsum(1) <= top
    changes = (kept & same[query]).sum(1).double() / kept.sum(1) - before[query]
    return Effects(query, items[query, place], changes)


def _first(items: Int[Tensor, "n k"]) -> Bool[Tensor, "n k"]:
    """Return where an item occurs for the first time in its row."""
    earlier = torch.ones(items.shape[1], items.shape[1], dtype=torch.bool, device=items.device).tril(-1)
    return ~((items[:, :, None] == items[:, None, :]) & earlier).any(2)


def _nearest_pair(
    query: Float[Tensor, "n d"], rows: Float[Tensor, "m d"], i: Int[Tensor, " p"], j: Int[Tensor, " p"]
) -> Int[Tensor, " n"]:
    """Return for each query the number of its pair with the highest cosine."""
    one_pair = torch.empty(len(query), dtype=torch.long, device=query.device).index_put_((i,), j)
    if len(i) == len(query):
        return one_pair
    order = _leads_of_pairs(query, rows[one_pair], rows, i, j).argsort(descending=True)
    order = order[i[order].argsort(stable=True)]
    firsts = torch.searchsorted(i[order], torch.arange(len(query), device=query.device))
    return j[order[firsts]]


def _leads_of_pairs(
    query: Float[Tensor, "n d"],
    pair: Float[Tensor, "n d"],
    rows: Float[Tensor, "m d"],
    i: Int[Tensor, " p"],
    j: Int[Tensor, " p"],
) -> Float[Tensor, " p"]:
    """Return for each pair (i, j) how much larger the product of query i with row j is than with its first pair.

    This is ⟨q_i, rows_j − pair_i⟩, computed from differences, because products of close rows lose precision.
    """
    leads = query.new_empty(len(i))
    step = max(1, entries_at_a_time(query.device) // query.shape[1])
    for own, other, out in zip(i.split(step), j.split(step), leads.split(step), strict=True):
        torch.sum((rows[other] - pair[own]).mul_(query[own]), 1, out=out)
    return leads


RANKS = (1, 5, 10)
MOST_ROWS = 20  # largest number of rows of an item for which its effect is exact
EXAMINED = 100  # number of queries that a remark examines for ties
MANY = 0.1  # share of queries with ties above which a remark mentions them


def _remark_on_queries(image: Rows, text: Rows, pairs: Any = None) -> str | None:
    """Return the remark on data with several pairs per row: which rows are queries, and when a query is correct."""
    if pairs is None:
        return None
    return f"{len(image)} images and {len(text)} texts are queries, each correct if it finds any of its pairs"


@torch.no_grad()
def _remark_on_ties(name: str, image: Rows, text: Rows, pairs: Any = None) -> str | None:
    """Return the remark for ranks, which also says how many queries have other rows exactly as near as their pair.

    Only `EXAMINED` queries are examined, since each takes O(nd).
    """
    direction = next(direction for direction in Search(image, text, pairs).directions if direction.name == name)
    queries, others = direction.queries, direction.others
    examined = torch.linspace(0, len(queries) - 1, min(len(queries), EXAMINED), device=queries.device).long()
    mean = mean_row(others)
    centered = others - mean
    centered_pairs = direction.pair[examined] - mean
    leads = queries[examined] @ centered.T - (queries[examined] * centered_pairs).sum(1)[:, None]
    lengths = centered_pairs.norm(dim=1) + centered.norm(dim=1).amax()
    tolerance = TIE + (2 * queries.shape[1] + 16) * EPS * lengths
    as_near = leads.abs() <= tolerance[:, None]
    own_pairs = torch.isin(direction.i, examined)  # a pair itself is not a tie
    as_near[torch.searchsorted(examined, direction.i[own_pairs]), direction.j[own_pairs]] = False
    tied = int(as_near.any(1).sum())
    remarks = [_remark_on_queries(image, text, pairs)]
    if tied > MANY * len(examined):
        remarks.append(
            f"{tied} of {len(examined)} {direction.modality} queries examined have other rows exactly as near as their "
            "pair, and ties count against the query"
        )
    return "; ".join(filter(None, remarks)) or None


for _name, _index in (("retrieval", "cross"), ("retrieval[mixed]", "mixed")):
    _numbers: dict[str, dict[str, Any]] = {}
    for _direction in ("image_to_text", "text_to_image"):
        _remark = {"remark": partial(_remark_on_ties, _direction)}
        _numbers |= {f"{_direction}.r_at_{top}": _remark for top in RANKS}
        # the median rank needs all products, so it is a call of its own
        _numbers[f"{_direction}.median_rank"] = {**_remark, "options": {"index": _index}, "shares": None}
    _options = {"index": _index, "median_rank": False}
    add_evaluator(
        Measure(_name, retrieval, options=_options, statistic=Search, remark=_remark_on_queries, shares=_shares),
        _numbers,
    )
