"""The neighbors of points before and after a repair, which points are hubs, and what a mixed search finds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from clip_geometry.explorer.points import Points, in_blocks
from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import blocks
from clip_geometry.search.repairs import InnerProduct, Repair
from clip_geometry.search.repairs.calibration import ORDER, Calibrated, Curved
from clip_geometry.search.shipping import item_map, query_map

K = 10
BLOCK = 2048  # queries between two steps of the progress

Advance = Callable[[int], None]
Best = Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]]  # (query, item) → numbers and scores, (q, k)


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


def best_items(repair: Repair, points: Points, queries: np.ndarray, advance: Advance = lambda count: None) -> Best:
    """Return the K best items of each modality for each query, without the query itself, exactly.

    A score that is one inner product is searched for as a nearest neighbor: items get one more dimension, which gives
    them all the same length (Bachrach et al. 2014).

    Raises:
        InputError: The score is no inner product, as that of a fusion of lists.
    """
    if not isinstance(repair, InnerProduct):
        raise InputError(f"{repair.name} is no inner product and no curve of the cosine, so its lists are not computed")
    found = {}
    items = {name: torch.from_numpy(in_blocks(item_map(repair, name), x)) for name, x in points.rows.items()}
    squares = {name: torch.cat([block.square().sum(1) for block in blocks(x)]) for name, x in items.items()}
    longest = torch.stack([each.max() for each in squares.values()]).max()
    lift = {name: (longest - each).clamp(min=0).sqrt()[:, None] for name, each in squares.items()}
    even = all(float(each.max()) < 1e-3 for each in lift.values())  # maps give unit rows, up to rounding
    if not even:
        for name in items:
            items[name] = torch.cat([items[name], lift[name].float()], 1)
    for place, query in enumerate(points.sets):
        rows = queries[points.modality[queries] == place] - points.starts[query]
        if not len(rows):
            continue
        q = torch.from_numpy(query_map(repair, query)(points.rows[query][rows]).astype(np.float32))
        if not even:
            q = torch.cat([q, torch.zeros(len(q), 1)], 1)
        lengths = q.double().square().sum(1).numpy()[:, None]
        for item, x in items.items():
            parts = []
            for start in range(0, len(rows), BLOCK):
                part = slice(start, start + BLOCK)
                parts.append(_nearest(q[part], x, rows[part] if item == query else None))
                advance(len(rows[part]))
            numbers, distances = (np.concatenate(each) for each in zip(*parts, strict=True))
            found[query, item] = numbers, (lengths + (1.0 if even else float(longest)) - np.square(distances)) / 2
    return found


def _nearest(q: torch.Tensor, x: torch.Tensor, own: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    k = min(K + (own is not None), len(x))
    distances, near = (each.numpy() for each in nearest(q, k, y=x))
    if own is None:
        return near, distances
    itself = near == own[:, None]
    itself[~itself.any(1), -1] = True  # copies of it, or where queries take another map, can be nearer than itself
    return near[~itself].reshape(len(q), -1), distances[~itself].reshape(len(q), -1)


def keeps_order(repair: Repair) -> bool:
    """Whether only the scores of each kind change, so that the order within a modality stays."""
    return isinstance(repair, Calibrated) and not repair.centered


def rescored(repair: Repair, best: Best) -> Best:
    """The best items after a repair that keeps their order within a modality."""
    if isinstance(repair, Curved):
        curves = repair.knots_
        return {kind: (near, np.interp(c, *curves[kind]) + ORDER * c) for kind, (near, c) in best.items()}
    assert isinstance(repair, InnerProduct)
    terms = repair.terms_
    return {kind: (near, terms[kind].slope * c + terms[kind].offset) for kind, (near, c) in best.items()}


def merged(points: Points, queries: np.ndarray, best: Best) -> Neighbors:
    """Return one list for each query: its K best of its own modality and its K best of all others."""
    names = list(points.sets)
    width = 2 * K if len(names) > 1 else K
    numbers, scores = np.full((len(queries), width), -1), np.full((len(queries), width), -np.inf)
    of_query = points.modality[queries]

    def in_order(parts: Sequence[tuple[np.ndarray, np.ndarray]], most: int) -> tuple[np.ndarray, np.ndarray]:
        near, value = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        order = np.argsort(-value, axis=1, kind="stable")[:, :most]
        return np.take_along_axis(near, order, 1), np.take_along_axis(value, order, 1)

    for place, query in enumerate(names):
        here = np.flatnonzero(of_query == place)
        if not len(here):
            continue
        lists = {name: (points.starts[name] + best[query, name][0], best[query, name][1]) for name in names}
        own = in_order([lists.pop(query)], K)
        near, value = in_order([own, in_order([*lists.values()], K)] if lists else [own], width)
        numbers[here, : near.shape[1]], scores[here, : near.shape[1]] = near, value
    return Neighbors(numbers, scores)


def search_numbers(points: Points, queries: np.ndarray, found: Neighbors, before: Neighbors) -> dict[str, float]:
    """What held-out queries find, as `diagnose` calls it: the mean over modalities of the mean over their queries.

    Returns:
        own_share, and where points belong together r_at_1, hit_at_10 and cross_r_at_1; neighbors.
    """
    modality, keys = points.modality, points.keys
    own = modality[queries][:, None]
    there = found.numbers >= 0
    near = np.where(there, found.numbers, 0)
    same = (modality[near] == own) & there
    across = ~same & there
    partner = across & (keys[near] == keys[queries][:, None]) & (keys[queries][:, None] >= 0)
    first_across = across & (across.cumsum(1) == 1)
    values: dict[str, np.ndarray] = {
        "own_share": same[:, :K].sum(1) / there[:, :K].sum(1),
        "r_at_1": partner[:, 0].astype(float),
        "hit_at_10": partner[:, :K].any(1).astype(float),
        "cross_r_at_1": (partner & first_across).any(1).astype(float),
    }
    # a number is in a list once, so that one found in both is there twice
    lists = [
        np.where(modality[np.where(each.numbers >= 0, each.numbers, 0)] == own, each.numbers, -1)
        for each in (before, found)
    ]
    both = np.sort(np.concatenate(lists, axis=1), axis=1)
    twice = (both[:, 1:] == both[:, :-1]) & (both[:, 1:] >= 0)
    values["neighbors"] = twice.sum(1) / np.maximum((lists[0] >= 0).sum(1), 1)
    asked = points.held_out[queries]
    # keys that rows of several modalities have
    shared, modalities = np.unique(
        np.unique(keys * len(points.sets) + modality) // len(points.sets), return_counts=True
    )
    known = asked & np.isin(keys[queries], shared[(modalities > 1) & (shared >= 0)])
    numbers = {}
    for name, each in values.items():
        if name in ("own_share", "neighbors"):
            numbers[name] = _mean(each, own[:, 0], asked)
        elif points.keyed_by is not None and known.any():
            numbers[name] = _mean(each, own[:, 0], known)
    if len(points.sets) == 1:
        del numbers["own_share"]
    return numbers


def _mean(values: np.ndarray, modality: np.ndarray, chosen: np.ndarray) -> float:
    means = [values[chosen & (modality == each)].mean() for each in np.unique(modality[chosen])]
    return float(np.mean(means)) if means else float("nan")
