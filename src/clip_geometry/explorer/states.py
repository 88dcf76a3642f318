"""The stops of the slider: first no repair, then one repair each, with plane, neighbors and numbers."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clip_geometry.explorer.points import Points, in_blocks
from clip_geometry.geometry import modality_gap, null_value
from clip_geometry.geometry.distances.best_scores import BestScores
from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.memory import give_back
from clip_geometry.progress import Progress
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import blocks
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.repairs import Repair, repairs
from clip_geometry.search.repairs.maps import Mapped, ReciprocalRank
from clip_geometry.steps import transforms
from clip_geometry.transforms import RankWarning

NONE = "none"
BY_DEFAULT = ("center", "whiten", "procrustes", "least_squares", "posterior")
OF_MANY = ("center", "procrustes", "posterior")
MANY = 20_000  # points above which fewer repairs are shown by default
K = 10  # neighbors of each kind
SCORES = 2**24  # scores in memory at a time, in two copies
UMAP_NEIGHBORS = 15
UMAP_ROWS = 4000  # limit; for more rows, UMAP uses a search whose compilation takes a minute


class PrincipalPlane(NamedTuple):
    """The first two principal components of all rows.

    points: (n, 2), with the sets one after the other. shares: share of the variance of each component.
    """

    points: np.ndarray
    shares: tuple[float, float]


def principal_plane(sets: Sequence[np.ndarray], like: np.ndarray | None = None) -> PrincipalPlane:
    """Return the first two principal components of the rows of all sets; for rows of dimension 1, the second is 0.

    Args:
        sets: (n, d) rows of each set.
        like: (n, 2) points for the same rows, which determine the sign of the components: each component gets the sign
            that correlates with these points. By default, it gets the sign that makes its largest entry positive.
    """
    rows = [StreamedRows.of(x) for x in sets]
    moments = reduce(Moments.__add__, map(Moments.of, rows))
    squares, axes = (values.flip(-1) for values in torch.linalg.eigh(moments.M2))
    axes = axes[:, :2]
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    points = torch.cat([(block - moments.mean) @ axes for x in rows for block in blocks(x)]).numpy()
    shares = (squares[:2].clamp(min=0) / squares.clamp(min=0).sum().clamp(min=1e-300)).tolist()
    if points.shape[1] < 2:
        points = np.column_stack([points, np.zeros(len(points))])
        shares = [*shares, 0.0]
    if like is not None:
        points = points * np.where((points * (like - like.mean(0))).sum(0) < 0, -1.0, 1.0)
    return PrincipalPlane(points, (shares[0], shares[1]))


def umap_plane(rows: np.ndarray, *, seed: int = 0, start: np.ndarray | None = None) -> np.ndarray:
    """Embed (n, d) rows in two dimensions with UMAP, by the cosine and 15 neighbors; n ≥ 4.

    start: (n, 2) initial points, such as the plane of these rows before a map, so that both planes agree in
    orientation; by default, UMAP's spectral layout.
    """
    init: Any = "spectral" if len(rows) > UMAP_NEIGHBORS else "random"
    if start is not None:  # scale as UMAP scales its spectral layout, so that clusters can still be untangled
        centered = start - start.mean(0)
        init = (10 * centered / (np.abs(centered).max() or 1.0)).astype(np.float32)
    k = min(UMAP_NEIGHBORS, len(rows) - 1)
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings(action="ignore"):  # from its dependencies, and about a seed that means one thread
            from umap import UMAP

            umap = UMAP(metric="cosine", n_neighbors=k, init=init, random_state=seed, n_jobs=1)
            return np.asarray(umap.fit_transform(rows), np.float64)
    finally:  # numba sets the number of OpenMP threads, which it shares with torch
        torch.set_num_threads(threads)


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The items with the best scores for each query: ten of its own modality and ten of the others, in one list.

    Attributes:
        numbers: (q, w) numbers of points, best first; −1 where there are fewer.
        scores: (q, w) scores of the points; for maps of the rows, these are cosines.
    """

    numbers: np.ndarray
    scores: np.ndarray

    def counts(self, n: int) -> np.ndarray:
        """Return N_k, (n,): the number of lists in which each of the n points is among the first ten."""
        first = self.numbers[:, :K]
        return np.bincount(first[first >= 0], minlength=n)


def neighbors_of(repair: Repair, points: Points, queries: np.ndarray, advance: Callable[[int], object]) -> Neighbors:
    """Return the neighbors of each query among all other points, by the scores of a fitted repair."""
    width = 2 * K if len(points.sets) > 1 else K
    numbers, scores = np.full((len(queries), width), -1), np.full((len(queries), width), -np.inf)
    for modality, query in enumerate(points.sets):
        selected = np.flatnonzero(points.modality[queries] == modality)
        if len(selected):
            best = {item: _best_items(repair, points, query, queries[selected], item) for item in points.sets}
            lists = [best.pop(query)]
            if best:
                lists.append(_top([*best.values()], K))
            values, best_numbers = _top(lists, width)
            scores[selected, : values.shape[1]] = values.numpy()
            numbers[selected, : values.shape[1]] = best_numbers.masked_fill(values == -torch.inf, -1).numpy()
        advance(len(selected))
    return Neighbors(numbers, scores)


def _best_items(repair: Repair, points: Points, query: str, queries: np.ndarray, item: str) -> tuple[Tensor, Tensor]:
    """Return scores and numbers of the K best items of a modality. Items come in blocks, so each is mapped once."""
    q = points.rows[query][queries - points.starts[query]]
    x = points.rows[item]
    step = max(K, SCORES // len(queries))
    best = BestScores(len(queries), K, dtype=torch.float64)
    for start in range(0, len(x), step):
        table = repair.scores(query, q, item, x[start : start + step])
        itself = queries - points.starts[item] - start  # out of range for queries of another modality
        inside = (itself >= 0) & (itself < table.shape[1])
        table[inside, itself[inside]] = -np.inf
        first = points.starts[item] + start
        best.add(torch.from_numpy(table), torch.arange(first, first + table.shape[1]))
    return best.in_order()


def _top(lists: Sequence[tuple[Tensor, Tensor]], k: int) -> tuple[Tensor, Tensor]:
    """Merge lists of scores and numbers, and return the k best of each query."""
    values, numbers = (torch.cat(columns, dim=1) for columns in zip(*lists, strict=True))
    values, order = values.sort(dim=1, descending=True, stable=True)
    return values[:, :k], numbers.gather(1, order)[:, :k]


def search_numbers(points: Points, queries: np.ndarray, neighbors: Neighbors, before: Neighbors) -> dict[str, float]:
    """Return what held-out queries find, as named in `diagnose`: means over modalities of means over their queries.

    Returns:
        neighbors; with several modalities, own_share; and if points have partners, r_at_1, hit_at_10 and cross_r_at_1.
    """
    modality = points.modality[queries][:, None]
    present = neighbors.numbers >= 0
    own = present & (points.modality[neighbors.numbers] == modality)
    across = present & ~own
    partner = across & (points.keys[neighbors.numbers] == points.keys[queries][:, None])
    was_own = (before.numbers >= 0) & (points.modality[before.numbers] == modality)
    equal = before.numbers[:, :, None] == neighbors.numbers[:, None, :]
    stays = was_own[:, :, None] & own[:, None, :] & equal
    held_out = points.held_out[queries]
    numbers = {"neighbors": (stays.sum((1, 2)) / np.maximum(was_own.sum(1), 1), held_out)}
    if len(points.sets) > 1:
        numbers["own_share"] = (own[:, :K].sum(1) / present[:, :K].sum(1), held_out)
    has_partner = held_out & points.has_partner[queries]
    if has_partner.any():
        numbers["r_at_1"] = (partner[:, 0], has_partner)
        numbers["hit_at_10"] = (partner[:, :K].any(1), has_partner)
        numbers["cross_r_at_1"] = ((partner & (across.cumsum(1) == 1)).any(1), has_partner)
    return {name: _mean(values, modality[:, 0], chosen) for name, (values, chosen) in numbers.items()}


def _mean(values: np.ndarray, modality: np.ndarray, chosen: np.ndarray) -> float:
    means = [values[chosen & (modality == number)].mean() for number in np.unique(modality[chosen])]
    return float(np.mean(means)) if means else float("nan")


@dataclass(frozen=True, eq=False)
class State:
    """A stop of the slider.

    Attributes:
        name: Name of the repair; "none" for the rows without one.
        summary: What the repair does, in one line.
        drawn_as: Name of the state whose planes are shown: its own, or "none" if the repair changes only scores.
        pca: The first two principal components of the rows; None if `drawn_as` is another state.
        umap: (n, 2) UMAP points; None if they were not computed.
        neighbors: Neighbors of the queries.
        numbers: Name → value on held-out queries.
    """

    name: str
    summary: str
    drawn_as: str
    pca: PrincipalPlane | None
    umap: np.ndarray | None
    neighbors: Neighbors
    numbers: Mapping[str, float]


def states_of(
    points: Points, queries: np.ndarray, names: Sequence[str] | None, *, umap: bool, seed: int, progress: Progress
) -> tuple[list[State], dict[str, str]]:
    """Return the states, "none" first, and a dictionary of repair → why it was left out.

    Args:
        points: The displayed points.
        queries: Numbers of the points whose neighbors are computed, ascending.
        names: Repairs, or pipeline steps such as whiten(32)[pooled]; None for a default choice.
        umap: Whether to compute UMAP for up to 4,000 points, which then takes most of the time.
        seed: Seed of UMAP.
        progress: Called as in `cg.embed`.

    Raises:
        InputError: A repair is unknown, or a requested repair cannot be fitted.
    """
    requested = names
    if requested is None:
        requested = BY_DEFAULT if len(points) <= MANY else OF_MANY
    fitted, failed = {}, {}
    for repair in [make(name) for name in dict.fromkeys((NONE, *requested))]:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):  # from equal rows, which the repair then rejects
                warnings.simplefilter("ignore", RankWarning)  # the numbers show the effect of too few rows
                fitted[repair.name] = repair.fit(points.index.known(points.fit))
        except InputError as error:
            if names is not None:
                raise
            failed[repair.name] = str(error)
    with progress("neighbors", len(fitted) * len(queries)) as advance:
        lists = {name: neighbors_of(repair, points, queries, advance) for name, repair in fitted.items()}
    umap = umap and 4 <= len(points) <= UMAP_ROWS
    planes, drawn, gaps = {}, {}, {}
    maps = [name for name, repair in fitted.items() if isinstance(repair, Mapped)]
    with progress("planes", len(maps)) as advance:
        for name in maps:  # the rows after one map at a time
            rows = points.rows
            if name != NONE:
                view = fitted[name].views_[0]
                rows = {modality: in_blocks(view.maps[modality], x) for modality, x in rows.items()}
            couples = [float(modality_gap(rows[one], rows[other])) for one, other in combinations(rows, 2)]
            gaps[name] = {"modality_gap": float(np.mean(couples))} if couples else {}
            planes[name] = principal_plane(list(rows.values()), None if name == NONE else planes[NONE].points)
            if umap:
                drawn[name] = umap_plane(np.concatenate(list(rows.values())), seed=seed, start=drawn.get(NONE))
            advance(1)
            del rows
            give_back()  # memory of this map's rows and of UMAP
    states = []
    for name in fitted:
        drawn_as = name if name in maps else NONE
        numbers = gaps[drawn_as] | search_numbers(points, queries, lists[name], lists[NONE])
        summary = repairs[name].summary if name in repairs else "a step of a pipeline, fitted on half of the items"
        if name == NONE:
            summary = "the unchanged rows, compared by the cosine"
        states.append(State(name, summary, drawn_as, planes.get(name), drawn.get(name), lists[name], numbers))
    return states, failed


def make(name: str) -> Repair:
    """Return a registered repair, or one pipeline step as a repair. Raises InputError for a repair without scores."""
    step = name not in repairs and name.partition("[")[0].partition("(")[0] in transforms
    repair = Mapped(name) if step else repairs[name].make()
    if isinstance(repair, ReciprocalRank):
        raise InputError(
            f"{name} ranks items by the whole list and does not score items; the explorer only shows repairs that "
            "score each item on its own"
        )
    return repair


def chances(points: Points) -> dict[str, float]:
    """Return null values: the modality gap of unstructured rows, and the share of the own modality in random order."""
    sizes = [len(embeddings) for embeddings in points.sets.values()]
    dim = next(iter(points.sets.values())).dim
    if len(sizes) == 1:
        return {}
    nulls = [null_value("modality_gap", a, dim, n_text=b) for a, b in combinations(sizes, 2)]
    own = (np.array(sizes) - 1) / (sum(sizes) - 1)
    return {"modality_gap": float(np.mean(nulls)), "own_share": float(own.mean())}
