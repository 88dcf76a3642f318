"""Retrieval from one index of both modalities where relevant items may be of either: from rows, or from any scores."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.evaluators.base import add_evaluator
from clip_geometry.evaluators.retrieval import TIE
from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.geometry.kinds import as_given, in_kind
from clip_geometry.geometry.measure import Measure
from clip_geometry.registry import InputError, listed, shown
from clip_geometry.rows.arguments import Integer, real_number, whole_number
from clip_geometry.rows.matrix import Rows, as_aligned, as_two_sets, unit_rows
from clip_geometry.search.relevance import Relevance, item_numbers

MODALITIES = ("image", "text")
# (queries, count) → scores and numbers of that many items of highest score, for each of these queries
Choose: TypeAlias = Callable[[Tensor, int], tuple[Tensor, Tensor]]
# (queries, their items) → the grade of each of these items
Grades: TypeAlias = Callable[[Tensor, Tensor], Tensor]


class Top(NamedTuple):
    """The best items of each query, best first.

    Args:
        scores: Descending; −inf where a query has fewer items.
        grades: The relevance of each item; 0 where there is none.
    """

    scores: Float[Tensor, "n k"]
    grades: Float[Tensor, "n k"]


def top(choose: Choose, grades_of: Grades, itself: Int[Tensor, " n"], items: int, k: int, tie: float = 0.0) -> Top:
    """Return the k items of highest score; of equal scores those of lower grade come first.

    More than k items are looked at, four times as many each time, for queries whose k-th score is tied with the last
    one seen.

    Args:
        choose: Selects items by their score alone.
        grades_of: Grades of the selected items.
        itself: (n,) the number of each query among the items, which is skipped; −1 where it is none of them.
        items: Number of items to choose from.
        k: Length of the lists.
        tie: Neighbors in the order of scores that differ by at most this much are equal.
    """
    rows = torch.arange(len(itself), device=itself.device)
    scores = torch.full((len(rows), k), -torch.inf, dtype=torch.float64, device=rows.device)
    grades, width = torch.zeros_like(scores), min(k + 2, items)
    while len(rows):
        found, columns = choose(rows, width)
        found = found.double().masked_fill(columns == itself[rows, None], -torch.inf)
        graded = grades_of(rows, columns).double().masked_fill(found == -torch.inf, 0)
        order = in_order(found, graded, tie)
        found, graded = found.gather(1, order), graded.gather(1, order)
        # the last one may be the query itself; an item that was not seen is no better than the one before
        settled = (found[:, k - 1 : -2] - found[:, k:-1] > tie).any(1)
        if width == items:
            settled = torch.ones_like(settled)
        scores[rows[settled], : min(k, width)] = found[settled, :k]
        grades[rows[settled], : min(k, width)] = graded[settled, :k]
        rows, width = rows[~settled], min(4 * width, items)
    return Top(scores, grades)


def in_order(scores: Float[Tensor, "n w"], grades: Float[Tensor, "n w"], tie: float = 0.0) -> Int[Tensor, "n w"]:
    """Return the order by descending score; of equal scores by ascending grade, then by position."""
    descending, order = scores.sort(dim=1, descending=True, stable=True)
    apart = descending[:, :-1] - descending[:, 1:] > tie
    if apart.all():
        return order
    groups = torch.zeros_like(order)
    groups.scatter_(1, order[:, 1:], apart.cumsum(1))
    order = grades.argsort(dim=1, stable=True)
    return order.gather(1, groups.gather(1, order).argsort(dim=1, stable=True))


@in_kind
def two_sided_retrieval(
    image: Rows, text: Rows, relevance: Relevance | None = None, *, k: Integer = 10
) -> dict[str, float]:
    """Measure what one index of images and texts returns for a query of either modality, by cosine.

    Relevant items may be images, texts or both. Every row is a query and is itself not in the index. Ties count against
    the query, whatever the order of the rows: among cosines within 4 ε, less relevant items come first. A query without
    relevant items is left out of all averages, one without relevant items of a modality out of the recall of that
    modality; a number of which no query is left is absent. For scores that are no cosines, see `two_sided_scores`.

    Args:
        image: (n, d) rows.
        text: (m, d) rows.
        relevance: Of `Relevance.of_labels(image=…, text=…)`, `.of_pairs` or `.of_grades`; None: row i of image and row
            i of text are relevant to each other, and nothing else is.
        k: Number of items that are looked at, k < n + m.

    Returns:
        Means over image queries (image.…) and over text queries (text.…), all in [0, 1] but the excess:

        - ndcg_at_K: Σ grade/log₂(1 + place) of the first K items, relative to the best possible order.
        - precision_at_K: the relevant share of the first K items. The best possible value is below 1 for queries with
          fewer than K relevant items.
        - own_precision_at_K: the same in an index of the query's own modality alone, which a repair of the mixed index
          should not cost: the relevant share of the K nearest own items (of all, where there are fewer). Over the
          queries with relevant items of their own modality.
        - image_recall_at_K, text_recall_at_K: relevant images (texts) among the first K items of the mixed index, over
          min(K, number of relevant images (texts)). Both can be 1 only where all relevant items fit into K places.
        - own_share_at_K: the share of the query's own modality among the first K items.
        - own_share_excess_at_K: that share less the own modality's share among all relevant items, in [−1, 1]; 0 is
          even-handed, and positive where the index favors the query's modality.

    Raises:
        InputError: For zero rows, k out of range, a relevance of other items, and sets of unequal length without a
            relevance.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> labels = np.arange(60) % 6
        >>> image = np.eye(6)[labels] + 0.3 * rng.normal(size=(60, 6))
        >>> text = np.eye(6)[labels] + 0.3 * rng.normal(size=(60, 6))
        >>> relevance = cg.Relevance.of_labels(image=labels, text=labels)
        >>> round(cg.two_sided_retrieval(image, text, relevance)["image.ndcg_at_10"], 2)
        0.93
        >>> gap = cg.two_sided_retrieval(image + 1, text - 1, relevance)
        >>> gap["image.text_recall_at_10"], round(gap["image.own_share_excess_at_10"], 2)
        (0.0, 0.53)
    """
    u, v, relevance = _checked(image, text, relevance)
    k = _places(k, len(u) + len(v))
    numbers = _numbers_of_queries(_by_query(u, v, relevance, k), k)
    return {key: float(values.nanmean()) for key, values in numbers}


def two_sided_scores(
    scores: Any, relevance: Relevance, query: str, *, queries: Any = None, k: Integer = 10, tie: float = 0.0
) -> dict[str, Any]:
    """Evaluate the scores of one index of several modalities, whatever made them, query by query.

    This is `two_sided_retrieval` before the average: repairs that change scores rather than rows are compared by it.
    The queries are items of one modality, and the item that a query is itself is skipped.

    Args:
        scores: Modality → (n, number of its items) scores of all queries, higher is better.
        relevance: Of all items, made once for many calls.
        query: The modality of the queries.
        queries: Item number of each query, where the scores are those of a sample, of a block that fits into memory, or
            in another order; None: all items of the modality in their order.
        k: Number of items that are looked at.
        tie: Scores that differ by at most this much count as equal, and against the query.

    Returns:
        One value for each query, (n,), an array (for tensors a float64 tensor), NaN where it is undefined: ndcg,
        precision, own_precision (the top k of the query's own modality alone), recall.M (relevant items of the modality
        M in the top k, over min(k, number of relevant items of M)), share.M (of the top k) and relevant_share.M (of the
        relevant items). All are NaN for a query without relevant items.

    Raises:
        InputError: For scores of other shapes, NaN, unknown modalities and k out of range.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> relevance = cg.Relevance.of_labels(image=[0, 1, 0], text=[0, 1])
        >>> to_images = np.array([[1.0, 0.8, 0.9], [0.8, 1.0, 0.7], [0.9, 0.7, 1.0]])
        >>> to_texts = np.array([[0.3, 0.1], [0.1, 0.3], [0.2, 0.2]])
        >>> found = cg.two_sided_scores({"image": to_images, "text": to_texts}, relevance, "image", k=2)
        >>> found["precision"], found["recall.text"]
        (array([0.5, 0. , 0.5]), array([0., 0., 0.]))
        >>> z = {"image": (to_images - 0.8) / 0.1, "text": (to_texts - 0.2) / 0.1}
        >>> cg.two_sided_scores(z, relevance, "image", k=2)["precision"]
        array([1. , 0.5, 0.5])
    """
    if query not in relevance.sizes:
        raise InputError(f"query = {shown(query)}; expected a modality of the relevance: {listed(relevance.sizes)}")
    k = _places(k, sum(relevance.sizes.values()))
    tie = real_number(tie, "tie", lambda number: 0 <= number < float("inf"), "a finite number from 0 on")
    checked = _as_scores(scores, relevance.sizes)
    numbers = torch.arange(relevance.sizes[query])
    if queries is not None:
        numbers = item_numbers(queries, relevance.sizes[query], query)
    if len(checked[query]) != len(numbers) or not len(numbers):
        raise InputError(f"scores are of {len(checked[query])} queries; expected {len(numbers)} {query} queries")
    tops = {}
    for name, each in checked.items():
        rows = numbers.to(each.device)
        itself = rows if name == query else torch.full_like(rows, -1)
        tops[name] = top(_highest(each), _graded(relevance, query, name, rows), itself, each.shape[1], k, tie)
    values = _values(tops, relevance, query, k, tie, numbers)
    return as_given(values, [each for each in scores.values() if isinstance(each, Tensor)])


def _as_scores(block: Any, sizes: Mapping[str, int]) -> dict[str, Float[Tensor, "b m"]]:
    if not isinstance(block, Mapping) or block.keys() != sizes.keys():
        names = listed(block) if isinstance(block, Mapping) else shown(block)
        raise InputError(f"scores are of {names}; expected a mapping of {listed(sizes)} to scores of their items")
    found = {}
    for name, size in sizes.items():
        try:
            each = torch.as_tensor(block[name]).detach()
        except (TypeError, ValueError, RuntimeError):
            each = torch.zeros(0)
        if each.ndim != 2 or each.shape[1] != size or not each.is_floating_point():
            given = f"{' × '.join(map(str, each.shape))} {str(each.dtype).removeprefix('torch.')}"
            raise InputError(f"scores of {name} items are {given}; expected floats, queries × {size} items")
        if each.isnan().any():
            raise InputError(f"scores of {name} items have NaN; expected −inf for items that cannot be returned")
        found[name] = each
    if len({len(each) for each in found.values()}) > 1:
        lengths = listed(f"{len(each)} of {name} items" for name, each in found.items())
        raise InputError(f"scores are of unequally many queries, {lengths}; expected a row for each query in all")
    return found


def _highest(scores: Float[Tensor, "n m"]) -> Choose:
    """Return the items of highest score, and these."""
    return lambda some, width: (scores if len(some) == len(scores) else scores[some]).topk(width, dim=1)


def _graded(relevance: Relevance, query: str, item: str, rows: Int[Tensor, " n"]) -> Grades:
    """Return the grades of items for some of the queries, which are these rows."""
    table = relevance.tables[query, item]
    return lambda some, columns: table.grades(rows[some], columns)


def _by_query(
    u: Float[Tensor, "n d"], v: Float[Tensor, "m d"], relevance: Relevance, k: int
) -> dict[str, dict[str, Tensor]]:
    """Return the values of each query, for the queries of each modality."""
    rows, found = dict(zip(MODALITIES, (u, v), strict=True)), {}
    for query, own in rows.items():
        tops, numbers = {}, torch.arange(len(own), device=own.device)
        for item, items in rows.items():
            itself = numbers if item == query else torch.full_like(numbers, -1)
            choose, table = _nearest(own, items), relevance.tables[query, item]
            tops[item] = top(choose, table.grades, itself, len(items), k, TIE)
        found[query] = _values(tops, relevance, query, k, TIE, numbers)
    return found


def _nearest(queries: Float[Tensor, "n d"], items: Float[Tensor, "m d"]) -> Choose:
    """Return the items of highest cosine and what their cosines are less 1, which keeps the digits of near rows."""

    def choose(rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
        distances, columns = nearest(queries[rows], width, y=items)
        return -distances.square() / 2, columns

    return choose


def _values(
    tops: Mapping[str, Top], relevance: Relevance, query: str, k: int, tie: float, queries: Int[Tensor, " n"]
) -> dict[str, Tensor]:
    """Return the numbers of each query from the best items of each modality, its own first among equals."""
    names = [query, *(name for name in tops if name != query)]
    scores, grades = (torch.cat([tops[name][part] for name in names], dim=1) for part in (0, 1))
    first = in_order(scores, grades, tie)[:, :k]
    gains, places = grades.gather(1, first), first // k  # each list has k places
    modality = places.masked_fill(scores.gather(1, first) == -torch.inf, -1)
    queries = queries.cpu()
    counts = {name: each[queries].double().to(gains.device) for name, each in relevance.counts(query).items()}
    total = torch.stack(list(counts.values())).sum(0)
    total[total == 0] = torch.nan  # of which every ratio is NaN, too
    discounts = torch.arange(2, k + 2, dtype=torch.float64, device=gains.device).log2().reciprocal()
    hits, some = gains > 0, total / total
    own_items = min(k, relevance.sizes[query] - 1)
    found = {
        "ndcg": gains @ discounts / (relevance.ideal(query, k)[queries].to(gains.device) @ discounts),
        "precision": hits.double().mean(1) * some,
        "own_precision": (tops[query].grades > 0).double().sum(1) / own_items * (counts[query] / counts[query]),
    }
    for number, name in enumerate(names):
        among = modality == number
        found |= {
            f"recall.{name}": (hits & among).sum(1) / counts[name].clamp(max=k),
            f"share.{name}": among.double().mean(1) * some,
            f"relevant_share.{name}": counts[name] / total,
        }
    return found


def _numbers_of_queries(found: Mapping[str, Mapping[str, Tensor]], k: int) -> Iterator[tuple[str, Float[Tensor, " q"]]]:
    """Yield each number and its values of the queries, NaN where a query has none."""
    for query, values in found.items():
        numbers = {name: values[name] for name in ("ndcg", "precision", "own_precision")}
        numbers |= {f"{item}_recall": values[f"recall.{item}"] for item in MODALITIES}
        numbers["own_share"] = values[f"share.{query}"]
        numbers["own_share_excess"] = values[f"share.{query}"] - values[f"relevant_share.{query}"]
        for name, each in numbers.items():
            if not each.isnan().all():
                yield f"{query}.{name}_at_{k}", each


def _checked(image: Rows, text: Rows, relevance: Relevance | None) -> tuple[Tensor, Tensor, Relevance]:
    image, text = (as_aligned if relevance is None else as_two_sets)(image, text, MODALITIES)
    sizes = dict(zip(MODALITIES, (len(image), len(text)), strict=True))
    if relevance is None:
        own = np.arange(len(image))
        relevance = Relevance.of_pairs((own, own), **sizes)
    if not isinstance(relevance, Relevance):
        raise InputError(f"relevance = {shown(relevance)}; expected one of Relevance.of_labels, of_pairs or of_grades")
    if relevance.sizes != sizes:
        given, rows = (listed(f"{n} {name}" for name, n in each.items()) for each in (relevance.sizes, sizes))
        raise InputError(f"the relevance is of {given} items; expected that of the rows, {rows}")
    return unit_rows(image, name="image"), unit_rows(text, name="text"), relevance


def _places(k: Integer, items: int) -> int:
    return whole_number(k, "k", most=items - 1, of=f", below the {items} items")


def _relevant(image: Rows, text: Rows, relevance: Relevance | None = None) -> str | None:
    """Return what relevance means, and which queries are left out."""
    if relevance is None:
        return None
    without = {name: relevance.without(name) for name in MODALITIES}
    left = [f"{count} of {relevance.sizes[name]} {name} queries" for name, count in without.items() if count]
    said = f"relevant: {relevance.words}"
    return f"{said}; {' and '.join(left)} have no relevant item and are left out" if left else said


add_evaluator(Measure("retrieval[two_sided]", two_sided_retrieval, remark=_relevant))
