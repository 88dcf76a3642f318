"""The stops of the slider: no repair, then one repair after the other, each with its plane, neighbors and numbers."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from clip_geometry.explorer.neighbors import K, Neighbors, best_items, keeps_order, merged, rescored, search_numbers
from clip_geometry.explorer.planes import PrincipalPlane, principal_plane, umap_plane
from clip_geometry.explorer.points import Points, in_blocks
from clip_geometry.geometry import modality_gap, null_value
from clip_geometry.memory import give_back
from clip_geometry.progress import Progress
from clip_geometry.registry import InputError
from clip_geometry.search.repairs import InnerProduct, Repair, repairs
from clip_geometry.search.repairs.maps import Mapped, SeparateMeans
from clip_geometry.transforms import RankWarning, transforms

NONE = "none"
BY_DEFAULT = (NONE, "center", "whiten", "procrustes", "least_squares", "posterior")
OF_MANY = (NONE, "center", "procrustes", "posterior")
MANY = 20_000  # points above which fewer repairs are shown by default
STILL = (
    "The points do not move: {} changes how pairs of rows are scored, which a plane of the rows cannot show (an index "
    "stores the change as added columns). Click a point to see its neighbors before and after."
)
UMAP_OF_ALL = 5000  # points up to which UMAP is drawn after every map, and not of the rows without a repair alone


@dataclass(frozen=True, eq=False)
class State:
    """A stop of the slider.

    Attributes:
        name: Of the repair; "none" for the rows without one.
        summary: What the repair does, in a line.
        drawn_as: The state whose planes are shown: its own name, or "none" where the repair changes scores only.
        pca: The first two principal components of the rows; None where `drawn_as` is another state.
        umap: (n, 2), or None where it was not computed.
        neighbors: Of the queries.
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
    """Return the states, "none" first, and repair → why it was left out.

    Args:
        points: What is shown.
        queries: The points whose neighbors are computed, ascending.
        names: Repairs, or steps of a pipeline such as whiten(32)[pooled]; None for a choice.
        umap: Whether UMAP is computed, which takes most of the time of small sets.
        seed: Of UMAP.
        progress: As of `cg.embed`.

    Raises:
        InputError: A repair is unknown, or one that was asked for cannot be fitted.
    """
    wanted = (BY_DEFAULT if len(points) <= MANY else OF_MANY) if names is None else names
    fitted, failed = {}, {}
    for repair in [make(name) for name in dict.fromkeys((NONE, *wanted))]:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):  # equal rows, which the repair then refuses
                warnings.simplefilter("ignore", RankWarning)  # what too few rows do to a map, the numbers show
                fitted[repair.name] = repair.fit(points.index.known(points.fit))
        except InputError as error:
            if names is not None:
                raise
            failed[repair.name] = str(error)
    maps = {name: isinstance(each, Mapped | SeparateMeans) for name, each in fitted.items()}
    searched = [name for name, each in fitted.items() if not keeps_order(each)]
    best, found = {}, {}
    with progress("neighbors", len(searched) * len(queries) * len(points.sets)) as advance:
        for name, repair in fitted.items():
            keeps = name not in searched
            found[name] = rescored(repair, best) if keeps else best_items(repair, points, queries, advance)
            best = best or found[name]
    planes, drawn, gaps = {}, {}, {}
    drawn_apart = [NONE, *(name for name, is_map in maps.items() if is_map and name != NONE)]
    with progress("planes", len(drawn_apart) * (1 + umap)) as advance:
        for name in drawn_apart:  # the rows after one map at a time
            each = points.rows
            if name != NONE:
                view = fitted[name].views_[0]
                each = {modality: in_blocks(view.items[modality], x) for modality, x in each.items()}
            gaps[name] = _gap(each)
            planes[name] = principal_plane(list(each.values()), None if name == NONE else planes[NONE].points)
            advance(1)
            if umap and (name == NONE or len(points) <= UMAP_OF_ALL):
                drawn[name] = umap_plane(np.concatenate(list(each.values())), seed=seed, start=drawn.get(NONE))
            if umap:
                advance(1)
            del each
            give_back()  # the rows of this map, and what UMAP took
    states = []
    for name in fitted:
        lists = merged(points, queries, found[name])
        before = lists if name == NONE else states[0].neighbors
        as_drawn = name if maps[name] else NONE
        numbers = gaps[as_drawn] | search_numbers(points, queries, lists, before)
        said = repairs[name].summary if name in repairs else "a step of a pipeline, fitted on half of the items"
        said = "the rows as they are, compared by the cosine" if name == NONE else said
        states.append(State(name, said, as_drawn, planes.get(name), drawn.get(name), lists, numbers))
    return states, failed


def make(name: str) -> Repair:
    """Return a registered repair, or one step of a pipeline as a repair. Raises InputError for one without scores."""
    step = name not in repairs and name.partition("[")[0].partition("(")[0] in transforms
    repair = Mapped(name) if step else repairs[name].make()
    if not (isinstance(repair, InnerProduct) or keeps_order(repair)):
        raise InputError(
            f"{repair.name} ranks items by the whole list and has no score of its own; the explorer shows repairs that "
            "are an inner product or a curve of the cosine"
        )
    return repair


def _gap(rows: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The modality gap, the mean over all couples of modalities."""
    couples = [float(modality_gap(rows[one], rows[other])) for one, other in combinations(rows, 2)]
    return {"modality_gap": float(np.mean(couples))} if couples else {}


def chances(points: Points) -> dict[str, float]:
    """Number → what rows without structure, or a list in random order, would give."""
    sizes = np.array([len(each) for each in points.sets.values()])
    n, dim = int(sizes.sum()), next(iter(points.sets.values())).dim
    found = {"neighbors": float(np.mean(np.minimum(1, K / np.maximum(sizes - 1, 1))))}
    if len(sizes) > 1:
        nulls = [null_value("modality_gap", int(a), dim, n_text=int(b)) for a, b in combinations(sizes, 2)]
        found |= {"modality_gap": float(np.mean(nulls)), "own_share": float(np.mean((sizes - 1) / (n - 1)))}
    if points.keyed_by is None:
        return found
    # a point has as many partners as there are points of its key in other modalities
    places, values = np.unique(points.keys, return_inverse=True)[1], []
    whole = np.bincount(places)
    for place, size in enumerate(sizes):
        mine = (points.modality == place) & (points.keys >= 0)
        partners = (whole - np.bincount(places[mine], minlength=len(whole)))[places[mine]]
        if len(partners := partners[partners > 0]):
            missed = np.prod([np.maximum(n - 1 - partners - k, 0) / (n - 1 - k) for k in range(min(K, n - 1))], axis=0)
            values.append([(partners / (n - 1)).mean(), (1 - missed).mean(), (partners / (n - size)).mean()])
    means = np.mean(values, axis=0).tolist() if values else []
    return found | dict(zip(("r_at_1", "hit_at_10", "cross_r_at_1"), means, strict=False))
