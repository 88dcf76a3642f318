"""The scores of first results with and without an answer in the index, for indexes of several sizes."""

from typing import NamedTuple

import numpy as np
import torch

from clip_geometry.embeddings import Embeddings
from clip_geometry.progress import Advance
from clip_geometry.rows.matrix import unit_blocks, unit_rows
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.matching.model import features

BLOCK = 8192  # rows of the index per product
LISTED = 64  # best wrong scores kept per query, of which a quarter of the index contains two almost surely
ANSWERS = 2  # best right scores kept per query: the first result and the second, to which it has its margin
DRAWS = {1.0: 1, 0.5: 4, 0.25: 8}  # share of the index: number of random subsets of it that each query searches
MANY = 1000  # queries from which fewer subsets are precise enough


class SearchScores(NamedTuple):
    """What a search of the index found for each of q queries.

    Args:
        right: (q, 2) best scores of right items, descending; −inf where there are fewer.
        wrong: (q, 64) best scores of wrong items, likewise.
        mean, std: (q,) mean and standard deviation of all scores of the query.
        m: Number of items in the index.
    """

    right: np.ndarray
    wrong: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    m: int


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
    right, wrong = torch.full((q, ANSWERS), -torch.inf), torch.full((q, LISTED), -torch.inf)
    total, gram = torch.zeros(d, dtype=torch.float64), torch.zeros(d, d, dtype=torch.float64)
    shift = torch.zeros(d)  # near the mean, so that float32 rounds little
    blocks = unit_blocks(StreamedRows.of(items.vectors), name=items.modality, size=BLOCK, dtype=torch.float32)
    for number, block in enumerate(blocks):
        start = number * BLOCK
        scores = rows @ block.T
        if exclude_itself:
            own = np.flatnonzero((start <= numbers) & (numbers < start + len(block)))
            scores[own, numbers[own] - start] = -torch.inf
        is_right = wanted == torch.from_numpy(item_codes[start : start + len(block)])
        right = _highest(right, torch.where(is_right, scores, -torch.inf), ANSWERS)
        scores[is_right] = -torch.inf
        wrong = _highest(wrong, scores, LISTED)
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
    answers, others, means, stds = (each.numpy().astype(np.float64) for each in (right, wrong, mean, std))
    return SearchScores(answers, others, means, stds, n)


def _highest(known: torch.Tensor, scores: torch.Tensor, k: int) -> torch.Tensor:
    """Return the k highest scores of each query, descending, given those of earlier blocks."""
    here = scores.topk(min(k, scores.shape[1]), dim=1).values
    return torch.cat([known, here], dim=1).topk(k, dim=1).values


def first_results(scores: SearchScores, rng: np.random.Generator) -> FirstResults:
    """Return the first results of all queries in the index and in random halves and quarters of it.

    Each query searches subsets of its own. It has two results in each: one as if it had no answer, from the wrong items
    only, and one with its best right items, if it has any. The subsets need no search, because they are subsets of the
    scores. Sizes teach how the probability depends on the size of the index, and draws add precision.
    """
    parts, numbers = [], np.arange(len(scores.right))
    for share, draws in DRAWS.items():
        size = max(2, round(share * scores.m))
        for _ in range(max(1, draws * MANY // max(MANY, len(numbers)))):
            kept = rng.random(scores.wrong.shape) < share
            wrong = _two_best(np.where(kept, scores.wrong, -np.inf))
            both = _two_best(np.concatenate([scores.right, wrong], axis=1))
            is_right = scores.right[:, 0] > wrong[:, 0]
            for answerable, top in ((False, wrong), (True, both)):
                known = np.isfinite(top).all(1) & (scores.std > 0)
                if answerable:
                    known &= np.isfinite(scores.right[:, 0])
                columns = features(top[known], scores.mean[known], scores.std[known], size)
                same = np.ones(len(columns), dtype=int)
                parts.append((columns, is_right[known] & answerable, same == answerable, numbers[known], same * size))
    return FirstResults(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _two_best(scores: np.ndarray) -> np.ndarray:
    return -np.partition(-scores, 1, axis=1)[:, :2]
