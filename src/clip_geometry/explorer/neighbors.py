"""The neighbors of points before and after a repair, which points are hubs, and what a mixed search finds."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from clip_geometry.explorer.points import Points
from clip_geometry.repairs import Repair

K = 10
SCORES = 2**25  # in memory at a time


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
    step = max(1, SCORES // len(points))
    for place, query in enumerate(points.sets):
        own = torch.from_numpy(points.modality == place)
        of_query = np.flatnonzero(points.modality[queries] == place)
        for start in range(0, len(of_query), step):
            part = of_query[start : start + step]
            rows = queries[part] - points.starts[query]
            found = repair.mixed(query, points.rows[query][rows], points.rows, rows)
            table = torch.from_numpy(np.concatenate([found[item] for item in points.sets], axis=1))
            lists = []
            for mask, most in ((own, int(own.sum()) - 1), (~own, int((~own).sum()))):
                best = table[:, mask].topk(min(K, most))
                lists.append((best.values, mask.nonzero()[:, 0][best.indices]))
            values, columns = (torch.cat(each, dim=1) for each in zip(*lists, strict=True))
            values, order = values.sort(dim=1, descending=True, stable=True)
            numbers[part, : values.shape[1]] = columns.gather(1, order).numpy()
            scores[part, : values.shape[1]] = values.numpy()
            advance(len(part))
    return Neighbors(numbers, scores)


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
