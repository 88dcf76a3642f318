"""What the table says in numbers, by rules.

The rules for `helping`, `free`, `best`, `registered` and the rankings were committed before the table was filled
(63977b5). The others were added when its numbers were known: `strict`, `missed`, `related`, `ideas`.
"""

import itertools
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from clip_geometry.search.repairs import repairs
from clip_geometry_experiments.kit.correlation import LEVEL, holm, rank_correlation
from clip_geometry_experiments.studies.repair_table.measuring import MEASURES
from clip_geometry_experiments.studies.repair_table.table import RepairTable

FEWEST = 5  # maps
Ranks = Mapping[str, float]  # map → its mean rank over the sets


class MeasureRelation(NamedTuple):
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


def registered(table: RepairTable) -> MeasureRelation | None:
    """The test that was committed before the table was filled (63977b5): geometry and retrieval by their mean ranks,
    over all rows that both rank, none among them; None where they rank three or fewer."""
    both = [table.rankings[group] for group in ("geometry", "retrieval") if group in table.rankings]
    if len(both) < 2 or len(names := [name for name in both[0].names if name in both[1].names]) <= 3:
        return None
    geometry, retrieval = (np.array([each.rank(name) for name in names]) for each in both)
    found, interval = spearmanr(geometry, retrieval), rank_correlation(geometry, retrieval)
    numbers = (found.statistic, interval.low, interval.high, found.pvalue)  # pyright: ignore
    return MeasureRelation("geometry", "retrieval", len(names), *map(float, numbers))


def examined(table: RepairTable, *, merged: bool = False) -> list[MeasureRelation]:
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
            found.append(MeasureRelation(measure, target, len(values[measure]), *related[:4]))
    first = registered(table)
    adjusted = holm(np.array([each.p for each in found] + ([first.p] if first else [])))
    return [each._replace(p=float(p)) for each, p in zip(found, adjusted[: len(found)], strict=True)]


def _mean_ranks(table: RepairTable, measure: str) -> Ranks:
    names, scores = table.scores([measure])
    return dict(zip(names, -scores.mean(0), strict=True)) if len(scores) else {}


RETRIEVAL = tuple(name for name, each in MEASURES.items() if each.group == "retrieval")
APART = ("own_precision", "neighbors", "cross_r_at_1", "cross_r_at_5")  # searches of one modality
AIM = "r_at_1"


def summary(table: RepairTable) -> SimpleNamespace:
    """Numbers of the sentences.

    Returns:
        sets: Number of ranked sets.
        count: Number of repairs, without none.
        helping: Repairs that raise recall in the mixed index on more sets than they lower it → on how many.
        free: Those of them that are worse on no set in any measure of retrieval within or across modalities.
        strict: Those of the free that are worse on no set in any measure of the mixed list either.
        missed: Measure of retrieval → the largest fall by a free repair that the test would not have seen on some set.
        best: The free repair, or else any, with the largest mean change, no baseline; "" if none helps.
        tied: Whether the other free repairs are within the critical difference of it by retrieval.
        gains: Repair → the mean change of recall at 1 in the mixed index by it, over the sets.
        rankings: Group → ranking.
        registered: The relation of geometry and retrieval.
        related: The relations of each measure of geometry and mixing to each of retrieval, over the maps of the rows.
        ideas: The same with the variants of one idea averaged.
    """
    names = [name for name in table.repairs if name != "none"]
    own = [name for name in names if not (name in repairs and repairs[name].baseline)]
    helping = {name: table.count(name, AIM, "better") for name in names
               if table.count(name, AIM, "better") > table.count(name, AIM, "worse")}  # fmt: skip
    free = [name for name in helping if not any(table.count(name, measure, "worse") for measure in APART)]
    changes = {name: [each.change for each in table.over_sets(name, AIM)] for name in names}
    gains = {name: float(np.mean(values)) for name, values in changes.items() if values}
    candidates = [name for name in free if name in own] or [name for name in helping if name in own]
    best = max(candidates, key=lambda name: gains[name], default="")
    ranked, others = table.rankings.get("retrieval"), [best, *free]
    tied = ranked is not None and set(others) <= set(ranked.names) and all(
        abs(ranked.rank(best) - ranked.rank(name)) <= ranked.difference for name in others
    )  # fmt: skip
    return SimpleNamespace(
        sets=len(table.ranked),
        count=len(names),
        helping=helping,
        free=free,
        strict=[name for name in free if not any(table.count(name, measure, "worse") for measure in RETRIEVAL)],
        missed={measure: max((table.detectable(name, measure) for name in free), default=0.0) for measure in RETRIEVAL},
        best=best,
        tied=tied,
        gains=gains,
        rankings=table.rankings,
        registered=registered(table),
        related=examined(table),
        ideas=examined(table, merged=True),
    )
