"""What the table says in numbers, by rules that were written before the table was filled."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from clip_geometry.experiments.repair_table.measuring import MEASURES
from clip_geometry.experiments.repair_table.ranks import Ranking
from clip_geometry.experiments.repair_table.table import RepairTable
from clip_geometry.repairs import repairs

MIXED = ("r_at_1", "hit_at_10", "ndcg")
APART = ("own_precision", "neighbors", "cross_r_at_1", "cross_r_at_5")  # what a repair of the mixed index can cost
AIM = "r_at_1"


class Cost(NamedTuple):
    """A measure that is worse on `sets` sets by `change` on average over all sets that have it."""

    title: str
    sets: int
    of: int
    change: float


@dataclass(frozen=True)
class Summary:
    """Numbers of the sentences.

    Attributes:
        sets: Number of ranked sets.
        count: Number of repairs, without none.
        helping: Repairs that raise recall in the mixed index on more sets than they lower it → on how many.
        free: Those of them that are worse on no set in any measure of retrieval apart.
        best: The free repair, or else any, with the largest mean change, no baseline; "" if none helps.
        tied: Whether the other free repairs are within the critical difference of it by retrieval.
        change: The mean change of recall at 1 in the mixed index by it, over the sets.
        costs: What the best repair makes worse, of all measures.
        rankings: Group → ranking.
        rho, p, maps: Rank correlation of geometry and retrieval over the maps of the rows, its p value, their number.
        leader: Of geometry, and its costs.
        known: Generated set → the best repair on it, its recall at 1 mixed and that of the known truth.
        missing: Set → why it was skipped.
    """

    sets: int
    count: int
    helping: dict[str, int]
    free: list[str]
    best: str
    tied: bool
    change: float
    costs: list[Cost]
    rankings: dict[str, Ranking]
    rho: float | None
    p: float | None
    maps: int
    leader: str
    leader_costs: list[Cost]
    known: dict[str, tuple[str, float, float]]
    missing: dict[str, str]


def summary(table: RepairTable) -> Summary:
    names = [name for name in table.repairs if name != "none"]
    own = [name for name in names if not (name in repairs and repairs[name].baseline)]
    helping = {name: table.count(name, AIM, "better") for name in names
               if table.count(name, AIM, "better") > table.count(name, AIM, "worse")}  # fmt: skip
    free = [name for name in helping if not any(table.count(name, measure, "worse") for measure in APART)]
    candidates = [name for name in free if name in own] or [name for name in helping if name in own]
    best = max(candidates, key=lambda name: _mean_change(table, name, AIM), default="")
    rho = p = None
    maps = []
    both = [table.rankings[group] for group in ("geometry", "retrieval") if group in table.rankings]
    if len(both) == 2 and len(maps := [name for name in both[0].names if name in both[1].names]) > 3:
        found = spearmanr([both[0].rank(name) for name in maps], [both[1].rank(name) for name in maps])
        rho, p = float(found.statistic), float(found.pvalue)  # pyright: ignore
    leader = next((name for name in both[0].names if name != "none"), "") if both else ""
    return Summary(
        len(table.ranked),
        len(names),
        helping,
        free,
        best,
        _tied(table.rankings.get("retrieval"), best, free),
        _mean_change(table, best, AIM) if best else 0.0,
        costs(table, best) if best else [],
        table.rankings,
        rho,
        p,
        len(maps),
        leader,
        costs(table, leader) if leader else [],
        _known(table, own),
        dict(table.missing),
    )


def _tied(found: Ranking | None, best: str, others: list[str]) -> bool:
    if found is None or not {best, *others} <= set(found.names):
        return False
    return all(abs(found.rank(best) - found.rank(name)) <= found.difference for name in others)


def costs(table: RepairTable, name: str) -> list[Cost]:
    """What a repair makes worse on at least one set, that on most sets first."""
    found = [
        Cost(MEASURES[m].title.removesuffix(" ↓"), table.count(name, m, "worse"), len(table.over_sets(name, m)),
             _mean_change(table, name, m))
        for m in MEASURES if table.count(name, m, "worse")
    ]  # fmt: skip
    return sorted(found, key=lambda each: -each.sets)


def _mean_change(table: RepairTable, name: str, measure: str) -> float:
    return float(np.mean([each.change for each in table.over_sets(name, measure)]))


def _known(table: RepairTable, names: list[str]) -> dict[str, tuple[str, float, float]]:
    found = {}
    for each in table.ranked:
        values = {name: table.values[each, name, AIM].value for name in names if (each, name, AIM) in table.values}
        if (truth := table.values.get((each, "truth", AIM))) is not None and values:
            best = max(values, key=lambda name: values[name])
            found[each] = best, values[best], truth.value
    return found
