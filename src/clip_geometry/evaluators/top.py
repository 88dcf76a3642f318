"""The k items of highest score of each query, with ties decided against the query."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

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
