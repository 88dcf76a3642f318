"""The neighbors of points before and after a repair, which points are hubs, and what a mixed search finds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clip_geometry.explorer.points import Points
from clip_geometry.search.repairs import Repair

K = 10
SCORES = 2**24  # in memory at a time, twice


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The best items of each query by their score: ten of its own modality and ten of the others, in one order.

    Attributes:
        numbers: (q, w) points, best first; −1 where there are fewer.
        scores: (q, w) their scores; of maps of the rows these are cosines.
    """

    numbers: np.ndarray
    scores: np.ndarray

    def counts(self, n: int) -> np.ndarray:
        """N_k: in how many of the lists each of the n points is among the first ten."""
        first = self.numbers[:, :K]
        return np.bincount(first[first >= 0], minlength=n)


def neighbors_of(repair: Repair, points: Points, queries: np.ndarray, advance: Callable[[int], object]) -> Neighbors:
    """Return the neighbors of each query among all points but itself, by the scores of a fitted repair."""
    width = 2 * K if len(points.sets) > 1 else K
    numbers, scores = np.full((len(queries), width), -1), np.full((len(queries), width), -np.inf)
    for place, query in enumerate(points.sets):
        chosen = np.flatnonzero(points.modality[queries] == place)
        if len(chosen):
            best = {item: _best_items(repair, points, query, queries[chosen], item) for item in points.sets}
            lists = [best.pop(query)]
            if best:
                lists.append(_top([*best.values()], K))
            values, found = _top(lists, width)
            scores[chosen, : values.shape[1]] = values.numpy()
            numbers[chosen, : values.shape[1]] = found.masked_fill(values == -torch.inf, -1).numpy()
        advance(len(chosen))
    return Neighbors(numbers, scores)


def _best_items(repair: Repair, points: Points, query: str, queries: np.ndarray, item: str) -> tuple[Tensor, Tensor]:
    """Scores and numbers of the K best items of a modality. Items come in blocks, so that each is mapped once."""
    q, x, step = points.rows[query][queries - points.starts[query]], points.rows[item], max(K, SCORES // len(queries))
    lists = []
    for start in range(0, len(x), step):
        table = repair.scores(query, q, item, x[start : start + step])
        itself = queries - points.starts[item] - start  # of queries of another modality, out of range
        inside = (itself >= 0) & (itself < table.shape[1])
        table[inside, itself[inside]] = -np.inf
        values, columns = torch.from_numpy(table).topk(min(K, table.shape[1]))
        lists.append((values, columns + points.starts[item] + start))
    return _top(lists, K)


def _top(lists: Sequence[tuple[Tensor, Tensor]], most: int) -> tuple[Tensor, Tensor]:
    values, numbers = (torch.cat(each, dim=1) for each in zip(*lists, strict=True))
    values, order = values.sort(dim=1, descending=True, stable=True)
    return values[:, :most], numbers.gather(1, order)[:, :most]


def search_numbers(points: Points, queries: np.ndarray, found: Neighbors, before: Neighbors) -> dict[str, float]:
    """What held-out queries find, as `diagnose` calls it: the mean over modalities of the mean over their queries.

    Returns:
        own_share, and where points belong together r_at_1, hit_at_10 and cross_r_at_1; neighbors.
    """
    own = points.modality[queries][:, None]
    listed = found.numbers >= 0
    same = listed & (points.modality[found.numbers] == own)
    across = listed & ~same
    partner = across & (points.keys[found.numbers] == points.keys[queries][:, None])
    was_own = (before.numbers >= 0) & (points.modality[before.numbers] == own)
    stays = was_own[:, :, None] & same[:, None, :] & (before.numbers[:, :, None] == found.numbers[:, None, :])
    held_out = points.held_out[queries]
    numbers = {"neighbors": (stays.sum((1, 2)) / np.maximum(was_own.sum(1), 1), held_out)}
    if len(points.sets) > 1:
        numbers["own_share"] = (same[:, :K].sum(1) / listed[:, :K].sum(1), held_out)
    asked = held_out & points.has_partner[queries]
    if asked.any():
        numbers["r_at_1"] = (partner[:, 0], asked)
        numbers["hit_at_10"] = (partner[:, :K].any(1), asked)
        numbers["cross_r_at_1"] = ((partner & (across.cumsum(1) == 1)).any(1), asked)
    return {name: _mean(values, own[:, 0], chosen) for name, (values, chosen) in numbers.items()}


def _mean(values: np.ndarray, modality: np.ndarray, chosen: np.ndarray) -> float:
    means = [values[chosen & (modality == each)].mean() for each in np.unique(modality[chosen])]
    return float(np.mean(means)) if means else float("nan")
