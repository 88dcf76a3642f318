"""The scores of first results with and without an answer in the index, for indexes of several sizes."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry.distances.best_scores import BestScores
from clip_geometry.progress import Advance
from clip_geometry.rows.matrix import unit_blocks, unit_rows
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.matching.model import features

BLOCK = 1024  # rows of the index per product
LISTED = 64  # best wrong scores kept per query, of which a quarter of the index contains two almost surely
ANSWERS = 16  # best right scores kept per query
DRAWS = {1.0: 1, 0.5: 4, 0.25: 8}  # share of the index: number of random subsets of it that each query searches
MANY = 1000  # queries from which fewer subsets are precise enough


class Best(NamedTuple):
    """The best scores of each query, (q, k), descending, and their items; −inf where there are fewer."""

    scores: np.ndarray
    items: np.ndarray


@dataclass(frozen=True)
class SearchScores:
    """What a search of the index found for each of q queries.

    Args:
        right: The best right items, k = 16.
        wrong: The best wrong items, k = 64.
        mean, std: (q,) mean and standard deviation of all scores of the query.
        wrong_mean, wrong_std: (q,) those of the scores of wrong items only, as in an index without an answer.
        m: Number of items in the index.
    """

    right: Best
    wrong: Best
    mean: np.ndarray
    std: np.ndarray
    wrong_mean: np.ndarray
    wrong_std: np.ndarray
    m: int

    def without(self, left_out: np.ndarray) -> "SearchScores":
        """Return the scores in an index without some items, given as a mask, (m,)."""
        right, wrong = (
            best._replace(scores=np.where(left_out[best.items], -np.inf, best.scores))
            for best in (self.right, self.wrong)
        )
        return replace(self, right=right, wrong=wrong, m=self.m - int(left_out.sum()))


class FirstResults(NamedTuple):
    """First results of searches in indexes of several sizes, (r, …), once with and once without the right items.

    Args:
        columns: (r, 4) `features`.
        right: (r,) whether the first result is right.
        answerable: (r,) whether the index had a right item.
        query: (r,) number of the query among those of the `SearchScores`.
        size: (r,) number of items in the index.
    """

    columns: np.ndarray
    right: np.ndarray
    answerable: np.ndarray
    query: np.ndarray
    size: np.ndarray

    def weights(self, answerable: float) -> np.ndarray:
        """Return weights that give queries with an answer their share, and each size of the index the same total."""
        weights = np.zeros(len(self.right))
        for size in np.unique(self.size):
            for has_answer, share in ((True, answerable), (False, 1 - answerable)):
                chosen = (self.size == size) & (self.answerable == has_answer)
                weights[chosen] = share / max(1, chosen.sum())
        return weights

    def take(self, chosen: np.ndarray) -> "FirstResults":
        return FirstResults(*(each[chosen] for each in self))


def search(
    queries: Embeddings,
    numbers: np.ndarray,
    items: Embeddings,
    query_codes: np.ndarray,
    item_codes: np.ndarray,
    *,
    exclude_itself: bool = False,
    advance: Advance = lambda _: None,
) -> SearchScores:
    """Search an index by cosine, in float32, and keep the best right and wrong scores of each query.

    Args:
        queries: Rows of the queries.
        numbers: (q,) which rows are queries.
        items: Rows of the index.
        query_codes, item_codes: A number for every row; items with the number of the query are right.
        exclude_itself: Whether the queries are rows of the index, each of which does not find itself.
        advance: Called with the number of rows of each block.
    """
    rows = unit_rows(StreamedRows.of(queries.vectors)[torch.from_numpy(numbers)], name=queries.modality).float()
    wanted = torch.from_numpy(query_codes[numbers])[:, None]
    q, n, d = len(rows), len(items), items.dim
    right, wrong = BestScores(q, ANSWERS), BestScores(q, LISTED)
    right_sums = torch.zeros(3, q, dtype=torch.float64)  # of the right items: number, sum and sum of squares
    total, gram = torch.zeros(d, dtype=torch.float64), torch.zeros(d, d, dtype=torch.float64)
    shift = torch.zeros(d)  # near the mean, so that float32 rounds little
    blocks = unit_blocks(StreamedRows.of(items.vectors), name=items.modality, size=BLOCK, dtype=torch.float32)
    for number, block in enumerate(blocks):
        start = number * BLOCK
        scores = rows @ block.T
        if exclude_itself:
            own = np.flatnonzero((start <= numbers) & (numbers < start + len(block)))
            scores[own, numbers[own] - start] = -torch.inf
        codes = torch.from_numpy(item_codes[start : start + len(block)])
        columns = torch.isin(codes, wanted).nonzero().squeeze(1)  # few of them, unless there are labels
        if len(columns):
            answers = scores[:, columns]
            is_right = (wanted == codes[columns]) & answers.isfinite()
            finite = torch.where(is_right, answers, 0).double()
            right_sums += torch.stack([is_right.sum(1), finite.sum(1), finite.square().sum(1)])
            right.add(torch.where(is_right, answers, -torch.inf), start + columns)
            scores[:, columns] = torch.where(is_right, -torch.inf, answers)
        wrong.add(scores, torch.arange(start, start + len(block)))
        shift = block.mean(0) if number == 0 else shift
        total += (block - shift).sum(0)
        gram += (block - shift).T @ (block - shift)
        advance(len(block))
    center = total / n
    asked = rows.double()
    mean = asked @ (shift.double() + center)
    variance = ((asked @ (gram / n - center.outer(center))) * asked).sum(1)
    if exclude_itself:  # the cosine of 1 with itself
        others = (n * mean - 1) / (n - 1)
        variance = (n * (variance + mean.square()) - 1) / (n - 1) - others.square()
        mean, n = others, n - 1
    std = variance.clamp(min=0).sqrt()
    count, sums, squares = right_sums
    others = (n - count).clamp(min=1)
    wrong_mean = (n * mean - sums) / others
    wrong_variance = (n * (variance + mean.square()) - squares) / others - wrong_mean.square()
    wrong_std = wrong_variance.clamp(min=0).sqrt()
    best_right, best_wrong = (
        Best(scores.double().numpy(), items.numpy()) for scores, items in (right.in_order(), wrong.in_order())
    )
    return SearchScores(best_right, best_wrong, mean.numpy(), std.numpy(), wrong_mean.numpy(), wrong_std.numpy(), n)


def first_results(scores: SearchScores, seed: int, asked: np.ndarray | None = None) -> FirstResults:
    """Return the first results of all queries in the index and in random halves and quarters of it.

    Each query searches subsets of its own. It has two results in each: one as if it had no answer, from the wrong items
    only, and one with its right items in the subset, if there are any; a single right item is in every subset. The
    subsets need no search, because they are subsets of the scores. Sizes teach how the probability depends on the size
    of the index, and draws add precision.

    Args:
        scores: The scores in the whole index.
        seed: Seed of the subsets; a query has the same ones whatever `asked` is.
        asked: (q,) mask of the queries to use; default: all.
    """
    rng = np.random.default_rng(seed)
    asked = np.ones(len(scores.mean), dtype=bool) if asked is None else asked
    asked = asked & (scores.std > 0) & (scores.wrong_std > 0)
    single = np.isfinite(scores.right.scores).sum(1, keepdims=True) == 1
    parts = []
    for share, draws in DRAWS.items():
        size = max(2, round(share * scores.m))
        for _ in range(max(1, draws * MANY // max(MANY, len(asked)))):
            right, wrong = (
                np.where(rng.random(best.scores.shape) < share, best.scores, -np.inf)
                for best in (scores.right, scores.wrong)
            )
            right = np.where(single, scores.right.scores, right)
            first_wrong, both = _two_best(wrong), _two_best(np.concatenate([right, wrong], axis=1))
            best_right = right.max(1)
            for answerable, top, mean, std in (
                (False, first_wrong, scores.wrong_mean, scores.wrong_std),
                (True, both, scores.mean, scores.std),
            ):
                known = asked & np.isfinite(top).all(1)
                if answerable:
                    known &= np.isfinite(best_right)
                columns = features(top[known], mean[known], std[known], size)
                is_right = (best_right > first_wrong[:, 0])[known] & answerable
                same = np.ones(len(columns), dtype=int)
                parts.append((columns, is_right, same == answerable, np.flatnonzero(known), same * size))
    return FirstResults(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _two_best(scores: np.ndarray) -> np.ndarray:
    return -np.partition(-scores, 1, axis=1)[:, :2]
