"""Retrieval from one index of both modalities where relevant items may be of either: from rows, or from any scores."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

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


def top(
    choose: Choose,
    grades_of: Callable[[Tensor, Tensor], Tensor],
    itself: Int[Tensor, " n"],
    items: int,
    k: int,
    tie: float = 0.0,
) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k"]]:
    """Return scores and grades of the k items of highest score; of equal scores those of lower grade come first.

    Scores are −inf and grades 0 where a query has fewer items. More than k items are looked at, four times as many each
    time, for queries whose k-th score is tied with the last one seen.

    Args:
        choose: Selects items by their score alone.
        grades_of: (queries, their items) → the relevance of each of these items.
        itself: (n,) the number of each query among the items, which is skipped; −1 where it is not one of them.
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
    return scores, grades


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
        relevance: Of `Relevance.of_labels(image=…, text=…)` or `.of_pairs`; None: row i of image and row i of text are
            relevant to each other, and nothing else is.
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
    image, text = (as_aligned if relevance is None else as_two_sets)(image, text, MODALITIES)
    rows = {"image": image, "text": text}
    sizes = {name: len(x) for name, x in rows.items()}
    if relevance is None:
        relevance = Relevance.of_pairs([np.arange(len(image))] * 2, image=len(image), text=len(text))
    if not isinstance(relevance, Relevance):
        raise InputError(f"relevance = {shown(relevance)}; expected Relevance.of_labels or of_pairs")
    if relevance.sizes != sizes:
        given, expected = (listed(f"{n} {name}" for name, n in each.items()) for each in (relevance.sizes, sizes))
        raise InputError(f"the relevance is of {given} items; expected that of the rows, {expected}")
    rows = {name: unit_rows(x, name=name) for name, x in rows.items()}
    k, found = _places(k, sum(sizes.values())), {}
    for query, own in rows.items():
        choose = {item: _nearest(own, x) for item, x in rows.items()}
        values = _values(choose, relevance, query, torch.arange(len(own), device=own.device), k, TIE)
        numbers = {name: values[name] for name in ("ndcg", "precision", "own_precision")}
        numbers |= {f"{item}_recall": values[f"recall.{item}"] for item in MODALITIES}
        numbers["own_share"] = values[f"share.{query}"]
        numbers["own_share_excess"] = values[f"share.{query}"] - values[f"relevant_share.{query}"]
        for name, each in numbers.items():
            if not each.isnan().all():
                found[f"{query}.{name}_at_{k}"] = float(each.nanmean())
    return found


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
    numbers = torch.arange(relevance.sizes[query])
    if queries is not None:
        numbers = item_numbers(queries, relevance.sizes[query], query)
    if not isinstance(scores, Mapping) or scores.keys() != relevance.sizes.keys():
        names = listed(scores) if isinstance(scores, Mapping) else shown(scores)
        raise InputError(
            f"scores are of {names}; expected a mapping of {listed(relevance.sizes)} to scores of their items"
        )
    checked = {}
    for name, size in relevance.sizes.items():
        try:
            each = torch.as_tensor(scores[name]).detach()
        except (TypeError, ValueError, RuntimeError):
            each = torch.zeros(0)
        expected = (len(numbers), size)
        if each.shape != expected or not each.is_floating_point() or each.isnan().any() or not len(numbers):
            given = f"{' × '.join(map(str, each.shape))} {str(each.dtype).removeprefix('torch.')}"
            raise InputError(
                f"scores of {name} items are {given}; expected floats, {expected[0]} {query} queries × {size} items, "
                "with −inf and not NaN for items that cannot be returned"
            )
        checked[name] = each
    choose = {name: _highest(each) for name, each in checked.items()}
    values = _values(choose, relevance, query, numbers.to(checked[query].device), k, tie)
    return as_given(values, [each for each in scores.values() if isinstance(each, Tensor)])


def _nearest(queries: Float[Tensor, "n d"], items: Float[Tensor, "m d"]) -> Choose:
    """Choose the items of highest cosine less 1, which keeps the digits of near rows."""

    def choose(some: Tensor, width: int) -> tuple[Tensor, Tensor]:
        distances, columns = nearest(queries[some], width, y=items)
        return -distances.square() / 2, columns

    return choose


def _highest(scores: Float[Tensor, "n m"]) -> Choose:
    return lambda some, width: (scores if len(some) == len(scores) else scores[some]).topk(width, dim=1)


def _values(
    choose: Mapping[str, Choose], relevance: Relevance, query: str, queries: Int[Tensor, " q"], k: int, tie: float
) -> dict[str, Tensor]:
    """Return the numbers of each query from the best items of each modality, its own first among equals."""

    def of(item: str) -> tuple[Tensor, Tensor]:
        table, itself = relevance.tables[query, item], queries if item == query else torch.full_like(queries, -1)
        grades_of = lambda some, columns: table.grades(queries[some], columns)  # noqa: E731
        return top(choose[item], grades_of, itself, relevance.sizes[item], k, tie)

    tops = {item: of(item) for item in relevance.sizes}
    names = [query, *(name for name in tops if name != query)]
    scores, grades = (torch.cat([tops[name][part] for name in names], dim=1) for part in (0, 1))
    first = in_order(scores, grades, tie)[:, :k]
    gains, places = grades.gather(1, first), first // k  # each list has k places
    modality = places.masked_fill(scores.gather(1, first) == -torch.inf, -1)
    counts = {name: each[queries.cpu()].double().to(gains) for name, each in relevance.counts(query).items()}
    total = torch.stack(list(counts.values())).sum(0)
    total[total == 0] = torch.nan  # of which every ratio is NaN, too
    first_places = torch.arange(k, dtype=torch.float64, device=gains.device)
    discounts = (first_places + 2).log2().reciprocal()
    ideal = (first_places < total[:, None]).double()
    hits, some = gains > 0, total / total
    own_items = min(k, relevance.sizes[query] - 1)
    found = {
        "ndcg": gains @ discounts / (ideal @ discounts),
        "precision": hits.double().mean(1) * some,
        "own_precision": (tops[query][1] > 0).double().sum(1) / own_items * (counts[query] / counts[query]),
    }
    for number, name in enumerate(names):
        among = modality == number
        found |= {
            f"recall.{name}": (hits & among).sum(1) / counts[name].clamp(max=k),
            f"share.{name}": among.double().mean(1) * some,
            f"relevant_share.{name}": counts[name] / total,
        }
    return found


def _places(k: Integer, items: int) -> int:
    return whole_number(k, "k", most=items - 1, of=f", below the {items} items")


def _relevant(image: Rows, text: Rows, relevance: Relevance | None = None) -> str | None:
    """Return what relevance means, and which queries are left out."""
    if relevance is None:
        return None
    counts = {name: torch.stack([*relevance.counts(name).values()]).sum(0) for name in MODALITIES}
    without = {name: int((count == 0).sum()) for name, count in counts.items()}
    left = [f"{count} of {relevance.sizes[name]} {name} queries" for name, count in without.items() if count]
    said = f"relevant: {relevance.words}"
    return f"{said}; {' and '.join(left)} have no relevant item and are left out" if left else said


add_evaluator(Measure("retrieval[two_sided]", two_sided_retrieval, remark=_relevant))
