"""The records of the table, the table built from records, and its results: wins, losses, ties, ranks and relations."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import chi2, f, rankdata, spearmanr, studentized_range, t

from clip_geometry.results import Record, Row
from clip_geometry.search.repairs import Repair, repairs
from clip_geometry_experiments.kit.significance import LEVEL, holm, rank_correlation
from clip_geometry_experiments.studies.repair_table import measuring


class Ranking(NamedTuple):
    """Ranking of repairs over data sets.

    Attributes:
        names: Names of the repairs, best first.
        mean: Mean rank of each repair over the data sets, where 1 is the best.
        sets: Number N of data sets.
        p: p-value of Iman and Davenport's F, a less conservative form of Friedman's test that no repair differs.
        difference: Nemenyi's critical difference at the level 0.05; mean ranks no further apart than this are a tie.
    """

    names: tuple[str, ...]
    mean: tuple[float, ...]
    sets: int
    p: float
    difference: float

    def ties(self) -> list[tuple[int, int]]:
        """Return (first, last) of every maximal run of repairs that are within the critical difference."""
        runs: list[tuple[int, int]] = []
        for first, rank in enumerate(self.mean):
            last = int(np.searchsorted(self.mean, rank + self.difference, side="right")) - 1
            if last > first and (not runs or last > runs[-1][1]):
                runs.append((first, last))
        return runs

    def best(self) -> tuple[str, ...]:
        """Return the repairs that are within the critical difference of the first."""
        return tuple(
            name for name, rank in zip(self.names, self.mean, strict=True) if rank <= self.mean[0] + self.difference
        )

    def rank(self, name: str) -> float:
        return self.mean[self.names.index(name)]


def ranking(names: Sequence[str], scores: NDArray[np.floating]) -> Ranking:
    """Rank repairs by scores, (data sets, repairs), where higher is better; equal scores share their mean rank.

    χ² = Σ_j (R_j − (k + 1)/2)² · (k − 1)N / Σ_j var, corrected for ties; F = (N − 1)χ²/(N(k − 1) − χ²). The critical
    difference is q √(k(k + 1)/6N), where q is the quantile of the studentized range for k means, divided by √2.
    """
    n, k = scores.shape
    ranks = rankdata(-scores, axis=1)
    means = ranks.mean(0)
    spread = float(((ranks - (k + 1) / 2) ** 2).sum()) / (n * (k - 1))  # (k + 1)k/12 without ties
    chi = n * float(((means - (k + 1) / 2) ** 2).sum()) / spread if spread else 0.0
    rest = n * (k - 1) - chi
    p = float(f.sf((n - 1) * chi / rest, k - 1, (k - 1) * (n - 1))) if rest > 1e-9 else float(chi2.sf(chi, k - 1))
    order = np.argsort(means, kind="stable")
    best_first = tuple(str(names[j]) for j in order)
    return Ranking(best_first, tuple(means[order].tolist()), n, p, critical_difference(k, n))


def critical_difference(k: int, n: int, level: float = LEVEL) -> float:
    """Return Nemenyi's critical difference of the mean ranks of k repairs over n data sets."""
    return float(studentized_range.ppf(1 - level, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n)))


def resampled_error(values: NDArray[np.floating], ratio: float) -> float:
    """Return the standard error of a mean over J random splits, √((1/J + ratio) s²), where s² is their variance.

    Since the splits overlap, s²/J would be too small. Source: Nadeau and Bengio 2003, doi:10.1023/A:1024068626366.

    Args:
        values: Values of the splits, (J,), J ≥ 2.
        ratio: Number of evaluated rows divided by the number of rows that a repair is fitted on.
    """
    return float(np.sqrt((1 / len(values) + ratio) * values.var(ddof=1)))


PREFIX = "repair_table."
Frame = Any  # a pandas.DataFrame, whose selections a type checker takes for arrays
NUMBERS = ("value", "error", "change", "change_error", "verdict")  # of a cell with a value
REFERENCES = ("noise", "truth")  # in the recorded table: Gaussian rows, and the planted gap removed


def rows_of(
    of: str,
    name: str,
    repair: Repair,
    by_split: Mapping[str, Sequence[float]],
    none: Mapping[str, Sequence[float]],
    halves: measuring.Halves,
) -> list[Row]:
    """Return one record per measure for a repair on one set.

    In addition to its value and standard error, a record has `change` from no repair on the same halves, `change_error`
    and `verdict`: "better", "worse" or "tie" by a t test at the level 0.05. Errors follow Nadeau and Bengio 2003 for
    overlapping splits. `by_split` holds the values of the splits. If there is no value, `note` says why.

    Args:
        of: Name of the set.
        name: Name of the repair.
        repair: The repair.
        by_split: Mapping from measure to its value on each split, NaN if undefined.
        none: Values without a repair, in the same form.
        halves: The halves of the set.
    """
    rows: list[Row] = []
    at = {"set": of, "repair": name}
    for measure, table_measure in measuring.MEASURED.items():
        values = np.array(by_split[measure], dtype=float)
        if np.isnan(values).any():
            of_scores = measure in measuring.OF_ROWS and not isinstance(repair, measuring.RowRepair)
            note = measuring.NO_ROWS if of_scores else measuring.NO_CLASSES
            rows.append(Record(PREFIX + measure, None, note=note, at=at))
            continue
        changes = values - np.array(none[measure])
        change = float(changes.mean())
        error = resampled_error(changes, halves.ratio)
        if abs(change) <= quantile(len(values)) * error + 1e-12:
            verdict = "tie"
        else:
            verdict = "better" if change * table_measure.better > 0 else "worse"
        compared = {
            "change": change,
            "change_error": error,
            "verdict": verdict,
            "by_split": [float(f"{value:.6g}") for value in values],
        }
        rows.append(
            Record(PREFIX + measure, float(values.mean()), resampled_error(values, halves.ratio), **compared, at=at)
        )
    return rows


def quantile(splits: int) -> float:
    """Return how many standard errors of the mean over these splits a change has to exceed to be significant."""
    return float(t.ppf(1 - LEVEL / 2, splits - 1))


@dataclass(frozen=True, eq=False)
class RepairTable:
    """The repair table.

    Attributes:
        cells: One line for each `set`, `repair` and `measure`: the mean over the splits (`value`), the `change` from no
            repair, their standard errors `error` and `change_error`, and the `verdict`; or a `note` that says why there
            is no value. `n`, `d` and `splits` are those of the set.
        controls: Sets in which there is nothing to find; repairs are not ranked on them.
    """

    cells: Frame
    controls: tuple[str, ...] = ()

    @cached_property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Set → number of rows and dimension."""
        return {cell.set: (cell.n, cell.d) for cell in self.cells.drop_duplicates("set").itertuples()}

    @property
    def splits(self) -> int:
        """Number of random halves."""
        return int(self.cells["splits"].max())

    @cached_property
    def measures(self) -> dict[str, measuring.TableMeasure]:
        """The measures of the table; measures that are only recorded are included if the table has their values."""
        known = set(self.cells["measure"][self.cells["value"].notna()])
        return {name: each for name, each in measuring.MEASURES.items() if not each.recorded or name in known}

    @cached_property
    def repairs(self) -> tuple[str, ...]:
        return tuple(name for name in self.cells["repair"].unique() if name not in REFERENCES)

    @cached_property
    def ranked(self) -> tuple[str, ...]:
        """The sets on which repairs are ranked."""
        return tuple(name for name in self.sizes if name not in self.controls)

    @cached_property
    def known(self) -> Frame:
        """The cells of the ranked sets that have a value."""
        return self.cells[self.cells["value"].notna() & self.cells["set"].isin(self.ranked)]

    @cached_property
    def _by_pair(self) -> dict[Any, Frame]:
        return dict(list(self.known.groupby(["repair", "measure"])))

    def over_sets(self, repair: str, measure: str) -> Frame:
        """Return the cells of a repair and a measure on the ranked sets."""
        return self._by_pair.get((repair, measure), self.known.iloc[:0])

    def count(self, repair: str, measure: str, verdict: str) -> int:
        return int((self.over_sets(repair, measure)["verdict"] == verdict).sum())

    def detectable(self, repair: str, measure: str) -> float:
        """Return the largest change on a ranked set that is a tie; the table cannot detect smaller ones."""
        errors = self.over_sets(repair, measure)["change_error"]
        return quantile(self.splits) * errors.max() if len(errors) else 0.0

    @cached_property
    def rankings(self) -> dict[str, Ranking]:
        """Group of measures → ranking of the repairs over the sets, without groups of fewer than two sets."""
        rankings = {}
        for group in dict.fromkeys(each.group for each in self.measures.values()):
            names, scores = self.scores([name for name, each in self.measures.items() if each.group == group])
            if len(scores) > 1 and len(names) > 1:
                rankings[group] = ranking(names, scores)
        return rankings

    def scores(self, measures: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """Return the repairs with values of these measures on every ranked set, and their scores, (sets, repairs).

        A score is minus the mean rank by the measures, where rank 1 is the best.
        """
        cells = self.known[self.known["measure"].isin(measures)]
        wide = cells.pivot(index=["set", "measure"], columns="repair", values="value").reindex(columns=self.repairs)
        wide = wide[wide["none"].notna()].dropna(axis="columns")  # measures of classes are absent if a set has none
        better = [measuring.MEASURES[measure].better for measure in wide.index.get_level_values("measure")]
        ranks = wide.mul(better, axis=0).round(12).rank(axis=1, ascending=False)
        scores = -ranks.groupby(level="set").mean()
        return list(scores.columns), scores.to_numpy()


def table_of(rows: Iterable[Mapping[str, Any]], controls: Sequence[str] = ()) -> RepairTable:
    """Build the table from its records."""
    cells = []
    for row in rows:
        key = {"measure": row["measure"].removeprefix(PREFIX), "error": row.get("standard_error"), **row["at"]}
        same = {name: row.get(name) for name in ("n", "d", "value", "change", "change_error", "verdict", "note")}
        cells.append({**key, **same, "splits": len(row.get("by_split", ()))})
    return RepairTable(pd.DataFrame(cells), tuple(controls))


def from_compact(lines: Iterable[Mapping[str, Any]]) -> RepairTable:
    """Build the table from one line per set and repair, as scripts/record_run.py writes them."""
    cells, controls = [], {}
    for line in lines:
        shared = {name: line[name] for name in ("set", "repair", "n", "d", "splits")}
        for measure, numbers in line["values"].items():
            cells.append({**shared, "measure": measure, **dict(zip(NUMBERS, numbers, strict=True))})
        cells += [{**shared, "measure": measure, "note": why} for measure, why in line.get("notes", {}).items()]
        controls[line["set"]] = line["control"]
    return RepairTable(pd.DataFrame(cells), tuple(name for name in controls if controls[name]))


FEWEST = 5  # minimum number of maps
Ranks = Mapping[str, float]  # map → its mean rank over the sets


class MeasureRelation(NamedTuple):
    """The rank correlation of two measures, or of two groups of measures, over maps.

    Attributes:
        measure: A measure of geometry or mixing; "geometry" for the group.
        target: A measure of retrieval; "retrieval" for the group.
        maps: Number of maps.
        rho: Spearman's ρ, positive if maps that are better by one measure are better by the other.
        low, high: 95% bootstrap interval of ρ over maps.
        p: p-value of ρ = 0. For an examined relation, it is adjusted by Holm for all examined relations and the
            registered one.
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
        return (
            f"{measuring.MEASURES[self.measure].title.removesuffix(' ↓')} with {measuring.MEASURES[self.target].title}"
        )

    @property
    def sure(self) -> bool:
        return self.p < LEVEL


def registered(table: RepairTable) -> MeasureRelation | None:
    """Return the registered test, which was committed before the table was filled (63977b5).

    It relates geometry and retrieval by their mean ranks, over all repairs that both rank, including "none". The result
    is None if they rank three or fewer.
    """
    both = [table.rankings[group] for group in ("geometry", "retrieval") if group in table.rankings]
    if len(both) < 2:
        return None
    names = [name for name in both[0].names if name in both[1].names]
    if len(names) <= 3:
        return None
    geometry, retrieval = (np.array([ranked.rank(name) for name in names]) for ranked in both)
    correlation = spearmanr(geometry, retrieval)
    interval = rank_correlation(geometry, retrieval)
    numbers = (correlation.statistic, interval.low, interval.high, correlation.pvalue)  # pyright: ignore
    return MeasureRelation("geometry", "retrieval", len(names), *map(float, numbers))


def examined(table: RepairTable, *, merged: bool = False) -> list[MeasureRelation]:
    """Relate every measure of geometry and mixing to every measure of retrieval.

    These relations are exploratory, since the result of the registered test was already known. The list is empty for
    fewer than five maps.

    Args:
        table: The table.
        merged: Average the variants of one idea, such as whitening to 32 and to 64 columns, which are not independent.
    """
    sources = [name for name, each in table.measures.items() if each.group in ("geometry", "mixing")]
    targets = [name for name, each in table.measures.items() if each.group == "retrieval"]
    by_measure = {name: _mean_ranks(table, name) for name in (*sources, *targets)}
    by_measure = {name: ranks for name, ranks in by_measure.items() if ranks}  # the sets may have no classes
    maps = [name for name in table.repairs if name != "none" and all(name in ranks for ranks in by_measure.values())]
    ideas: dict[str, list[str]] = {}  # idea → its maps
    for name in maps:
        ideas.setdefault(re.split(r"\W", name)[0] if merged else name, []).append(name)
    if len(ideas) < FEWEST:
        return []
    values = {
        measure: np.array([np.mean([ranks[name] for name in variants]) for variants in ideas.values()])
        for measure, ranks in by_measure.items()
    }
    relations = []
    for measure, target in itertools.product(sources, targets):
        if target in values and np.ptp(values[measure]) and np.ptp(values[target]):  # else all maps are equal
            related = rank_correlation(values[measure], values[target])
            relations.append(MeasureRelation(measure, target, len(values[measure]), *related[:4]))
    first = registered(table)
    adjusted = holm(np.array([each.p for each in relations] + ([first.p] if first else [])))
    return [each._replace(p=float(p)) for each, p in zip(relations, adjusted[: len(relations)], strict=True)]


def _mean_ranks(table: RepairTable, measure: str) -> Ranks:
    names, scores = table.scores([measure])
    return dict(zip(names, -scores.mean(0), strict=True)) if len(scores) else {}


RETRIEVAL = tuple(name for name, each in measuring.MEASURES.items() if each.group == "retrieval")
APART = ("own_precision", "neighbors", "cross_r_at_1", "cross_r_at_5")  # searches of one modality, not the mixed index
AIM = "r_at_1"


def summary(table: RepairTable) -> SimpleNamespace:
    """Return the numbers that the sentences report.

    The rules for `helping`, `free`, `best`, `registered` and the rankings were committed before the table was filled
    (63977b5). `strict`, `missed`, `related` and `ideas` were added after its numbers were known.

    Returns:
        sets: Number of ranked sets.
        count: Number of repairs, without none.
        helping: Mapping from each repair that raises recall in the mixed index on more sets than it lowers it, to the
            number of sets on which it raises it.
        free: Helping repairs that are worse on no set in any measure of retrieval within or across modalities.
        strict: Free repairs that are also worse on no set in any measure of the mixed list.
        missed: Mapping from measure of retrieval to the largest fall by a free repair that the test would have missed
            on some set.
        best: The free repair with the largest mean change, or any helping one if none is free, without baselines; "" if
            none helps.
        tied: Whether the other free repairs are within the critical difference of the best one by retrieval.
        gains: Mapping from repair to its mean change of recall at 1 in the mixed index over the sets.
        rankings: Mapping from group to ranking.
        registered: The relation of geometry and retrieval.
        related: The relations of each measure of geometry and mixing to each measure of retrieval, over the maps of
            rows.
        ideas: The same relations with the variants of one idea averaged.
    """
    names = [name for name in table.repairs if name != "none"]
    own = [name for name in names if not (name in repairs and repairs[name].baseline)]
    improved = {name: table.count(name, AIM, "better") for name in names}
    helping = {name: count for name, count in improved.items() if count > table.count(name, AIM, "worse")}
    free = [name for name in helping if not any(table.count(name, measure, "worse") for measure in APART)]
    changes = {name: table.over_sets(name, AIM)["change"] for name in names}
    gains = {name: float(change.mean()) for name, change in changes.items() if len(change)}
    candidates = [name for name in free if name in own] or [name for name in helping if name in own]
    best = max(candidates, key=lambda name: gains[name], default="")
    ranked = table.rankings.get("retrieval")
    tied = False
    if ranked is not None and {best, *free} <= set(ranked.names):
        tied = all(abs(ranked.rank(best) - ranked.rank(name)) <= ranked.difference for name in free)
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
