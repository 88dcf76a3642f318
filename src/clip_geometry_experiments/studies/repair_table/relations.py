"""Which measures go with retrieval over the maps of the rows: the registered test, and what was examined after it."""

import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from clip_geometry_experiments.kit.correlation import LEVEL, holm, rank_correlation
from clip_geometry_experiments.studies.repair_table.measuring import MEASURES
from clip_geometry_experiments.studies.repair_table.table import RepairTable

FEWEST = 5  # maps
# names of the maps that were added after the registered rule (d0e1b055), 33 minutes later
ADDED = ("ridge", "realign", "aniso_align", "combat", "harmony", "mutual_neighbors", "gaussian_transport", "sinkhorn")
ADDED += ("gromov_wasserstein", "conceptor")

Ranks = Mapping[str, float]  # map → its mean rank over the sets


class Relation(NamedTuple):
    """The rank correlation of two measures, or of two groups of measures, over maps.

    Attributes:
        measure: Of geometry or mixing; "geometry" for the group.
        target: Of retrieval; "retrieval" for the group.
        maps: Number of maps.
        rho: Spearman's ρ; positive where a map that is better by the one is better by the other.
        low, high: Its 95% bootstrap interval over maps.
        p: Of ρ = 0. Of an examined relation, adjusted by Holm for all of them and the registered one.
    """

    measure: str
    target: str
    maps: int
    rho: float
    low: float
    high: float
    p: float

    @property
    def title(self) -> str:
        return f"{MEASURES[self.measure].title.removesuffix(' ↓')} with {MEASURES[self.target].title}"

    @property
    def sure(self) -> bool:
        return self.p < LEVEL


def is_added(repair: str) -> bool:
    """Whether a repair was added to the list after the registered rule."""
    return any(word in ADDED for word in re.findall(r"[a-z_]+", repair))


def registered(table: RepairTable) -> Relation | None:
    """The test that was committed before the table was filled (63977b5): geometry and retrieval by their mean ranks,
    over all rows that both rank, none among them; None where they rank three or fewer."""
    both = [table.rankings[group] for group in ("geometry", "retrieval") if group in table.rankings]
    if len(both) < 2 or len(names := [name for name in both[0].names if name in both[1].names]) <= 3:
        return None
    geometry, retrieval = (np.array([each.rank(name) for name in names]) for each in both)
    found, interval = spearmanr(geometry, retrieval), rank_correlation(geometry, retrieval)
    numbers = (found.statistic, interval.low, interval.high, found.pvalue)  # pyright: ignore
    return Relation("geometry", "retrieval", len(names), *map(float, numbers))


def examined(table: RepairTable, *, merged: bool = False) -> list[Relation]:
    """Relate every measure of geometry and mixing to every measure of retrieval: exploratory, as the registered test
    had been read before. Empty for fewer than five maps.

    Args:
        table: The table.
        merged: Average the variants of one idea, such as whitening to 32 and to 64 columns: they are not independent.
    """
    sources = [name for name, each in table.measures.items() if each.group in ("geometry", "mixing")]
    targets = [name for name, each in table.measures.items() if each.group == "retrieval"]
    by_measure = {name: _mean_ranks(table, name) for name in (*sources, *targets)}
    by_measure = {name: each for name, each in by_measure.items() if each}  # the sets may have no classes
    maps = [name for name in table.repairs if name != "none" and all(name in each for each in by_measure.values())]
    ideas = {name: re.match(r"\w*", name).group() if merged else name for name in maps}  # pyright: ignore
    if len(set(ideas.values())) < FEWEST:
        return []
    values = {
        measure: np.array([np.mean([each[name] for name in maps if ideas[name] == idea])
                           for idea in dict.fromkeys(ideas.values())])
        for measure, each in by_measure.items()
    }  # fmt: skip
    found = []
    for measure, target in itertools.product(sources, targets):
        if target in values and np.ptp(values[measure]) and np.ptp(values[target]):  # else no map differs from others
            related = rank_correlation(values[measure], values[target])
            found.append(Relation(measure, target, len(values[measure]), *related[:4]))
    first = registered(table)
    adjusted = holm(np.array([each.p for each in found] + ([first.p] if first else [])))
    return [each._replace(p=float(p)) for each, p in zip(found, adjusted[: len(found)], strict=True)]


def _mean_ranks(table: RepairTable, measure: str) -> Ranks:
    names, scores = table.scores([measure])
    return dict(zip(names, -scores.mean(0), strict=True)) if len(scores) else {}
