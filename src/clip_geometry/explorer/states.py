"""The stops of the slider: no repair, then one repair after the other, each with its plane, neighbors and numbers."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from clip_geometry.explorer.neighbors import Neighbors, neighbors_of, search_numbers
from clip_geometry.explorer.planes import UMAP_ROWS, PrincipalPlane, principal_plane, umap_plane
from clip_geometry.explorer.points import Points, in_blocks
from clip_geometry.geometry import modality_gap, null_value
from clip_geometry.memory import give_back
from clip_geometry.progress import Progress
from clip_geometry.registry import InputError
from clip_geometry.search.repairs import Repair, repairs
from clip_geometry.search.repairs import Listwise
from clip_geometry.search.repairs.maps import Mapped, SeparateMeans
from clip_geometry.transforms import RankWarning, transforms

NONE = "none"
BY_DEFAULT = ("center", "whiten", "procrustes", "least_squares", "posterior")
OF_MANY = ("center", "procrustes", "posterior")
MANY = 20_000  # points above which fewer repairs are shown by default


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
        umap: Whether UMAP is computed of up to 4,000 points, which takes most of their time.
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
    with progress("neighbors", len(fitted) * len(queries)) as advance:
        lists = {name: neighbors_of(repair, points, queries, advance) for name, repair in fitted.items()}
    umap = umap and 4 <= len(points) <= UMAP_ROWS
    planes, drawn, gaps = {}, {}, {}
    maps = [name for name, each in fitted.items() if isinstance(each, Mapped | SeparateMeans)]
    with progress("planes", len(maps)) as advance:
        for name in maps:  # the rows after one map at a time
            rows = points.rows
            if name != NONE:
                view = fitted[name].views_[0]
                rows = {modality: in_blocks(view.items[modality], x) for modality, x in rows.items()}
            couples = [float(modality_gap(rows[one], rows[other])) for one, other in combinations(rows, 2)]
            gaps[name] = {"modality_gap": float(np.mean(couples))} if couples else {}
            planes[name] = principal_plane(list(rows.values()), None if name == NONE else planes[NONE].points)
            if umap:
                drawn[name] = umap_plane(np.concatenate(list(rows.values())), seed=seed, start=drawn.get(NONE))
            advance(1)
            del rows
            give_back()  # the rows of this map, and what UMAP took
    states = []
    for name in fitted:
        drawn_as = name if name in maps else NONE
        numbers = gaps[drawn_as] | search_numbers(points, queries, lists[name], lists[NONE])
        summary = repairs[name].summary if name in repairs else "a step of a pipeline, fitted on half of the items"
        summary = "the rows as they are, compared by the cosine" if name == NONE else summary
        states.append(State(name, summary, drawn_as, planes.get(name), drawn.get(name), lists[name], numbers))
    return states, failed


def make(name: str) -> Repair:
    """Return a registered repair, or one step of a pipeline as a repair. Raises InputError for one without scores."""
    step = name not in repairs and name.partition("[")[0].partition("(")[0] in transforms
    repair = Mapped(name) if step else repairs[name].make()
    if isinstance(repair, Listwise):
        raise InputError(
            f"{name} ranks items by the whole list and has no score of its own; the explorer shows repairs that rate "
            "each item for itself"
        )
    return repair


def chances(points: Points) -> dict[str, float]:
    """The modality gap of rows without structure, and the share of the own modality in a list in random order."""
    sizes, dim = [len(each) for each in points.sets.values()], next(iter(points.sets.values())).dim
    if len(sizes) == 1:
        return {}
    nulls = [null_value("modality_gap", a, dim, n_text=b) for a, b in combinations(sizes, 2)]
    own = (np.array(sizes) - 1) / (sum(sizes) - 1)
    return {"modality_gap": float(np.mean(nulls)), "own_share": float(own.mean())}
