"""Repairs of a mixed index compared by repeated cross-validation, with paired errors and a recommendation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from clip_geometry.diagnosis.task import Split, Task
from clip_geometry.evaluators.two_sided import two_sided_scores
from clip_geometry.registry import InputError
from clip_geometry.repairs import InnerProduct, Repair, repairs

K = 10
AIM = "found"
LEAST_OVERLAP = 0.95  # of the own modality's neighbors that a repair has to keep
MOST_PRECISION = 0.05  # that a repair may cost
TIE = 2.0  # paired standard errors up to which two repairs are a tie
INTERVAL = 1.645  # standard errors of a 90 % interval
BLOCK = 256  # queries scored at a time
# what each number is, for tables; all are means over queries of the share or the rank of one query
NUMBERS = {
    "found": "reciprocal rank of the first relevant item of another modality, in the mixed index",
    "first": "queries whose first item in the mixed index is relevant and of another modality",
    "own_share": "own modality in the top ten of the mixed index",
    "cross_first": "queries whose first item among the other modalities is relevant (ordinary recall at 1)",
    "overlap": "the ten nearest items of the own modality that stay among the ten nearest",
    "precision": "relevant share of the top ten of the mixed index",
    "ndcg": "NDCG of the top ten of the mixed index",
}


class Estimate(NamedTuple):
    """A mean over queries and its standard error, 0 where all queries agree."""

    value: float
    error: float

    def interval(self) -> tuple[float, float]:
        """The 90 % interval."""
        return self.value - INTERVAL * self.error, self.value + INTERVAL * self.error


@dataclass(frozen=True, eq=False)
class Candidate:
    """A repair as it did on the held-out halves.

    Attributes:
        name: Of the repair.
        numbers: Number → the mean over the queries of all modalities; by modality under "number.modality".
        changes: The same less the number without a repair, with a paired error.
        costs: Why it is not recommended, in words; empty if it costs nothing beyond noise.
    """

    name: str
    numbers: Mapping[str, Estimate]
    changes: Mapping[str, Estimate]
    costs: tuple[str, ...]

    @property
    def effort(self) -> int:
        """0 for none, 1 for what a vector index serves, 2 for a reranker."""
        return 0 if self.name == "none" else 1 if isinstance(repairs[self.name].make(), InnerProduct) else 2


@dataclass(frozen=True, eq=False)
class RepairComparison:
    """Which repair helps a mixed index, what it costs, and which one to take.

    Attributes:
        candidates: Repair → `Candidate`; "none" first.
        failed: Repair → why it could not be fitted.
        recommended: The repair to take, "none" where nothing helps beyond noise.
        ties: Those that cost nothing beyond noise and are within two paired errors of the best of these.
        front: The repairs that no other beats both in what is found and in ordinary recall.
        facts: Sizes, splits, seed, sampling.
    """

    candidates: Mapping[str, Candidate]
    failed: Mapping[str, str]
    recommended: str
    ties: tuple[str, ...]
    front: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


def compare_repairs(
    task: Task,
    names: Sequence[str] | None = None,
    *,
    splits: int = 10,
    seed: int = 0,
    most_fit: int = 1000,
    most_queries: int = 1000,
    logit_scale: float = 100.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RepairComparison:
    """Fit repairs on random halves of the items and search in the other halves.

    Args:
        task: The index and what is relevant in it.
        names: Repairs; by default all that are registered. "none" is always among them.
        splits: Number of random halves.
        seed: Of the splits.
        most_fit: Items to fit on.
        most_queries: Queries of each modality and split.
        logit_scale: Of the model, for posteriors where no pairs or labels are known.
        progress: Called with the number of finished fits and of all.

    Returns:
        The candidates with their numbers, and a recommendation.

    Raises:
        InputError: For unknown repairs, one modality only, and a task without labels or pairs.
    """
    if len(task.modalities) < 2:
        raise InputError(f"only {task.modalities[0]} rows were given; repairs of a mixed index need two modalities")
    if task.by is None:
        raise InputError("nothing says which items are relevant; give item ids, rows in order of their pairs, or labels")
    names = list(dict.fromkeys(("none", *(names or repairs))))
    entries = {name: repairs[name] for name in names}
    sums: dict[str, _Sums] = {name: _Sums(task) for name in names}
    failed: dict[str, str] = {}
    done = 0
    for split in task.splits(splits, seed=seed, most_fit=most_fit, most_queries=most_queries):
        known = task.known(split.fit, logit_scale)
        search = _Search(task, split)
        for name, entry in entries.items():
            done += 1
            if name not in failed:
                try:
                    repair = entry.make().fit(known)
                except InputError as error:
                    failed[name] = str(error)
                else:
                    for query, numbers in search.run(repair).items():
                        sums[name].add(query, split.queries[query], numbers)
            progress(done, splits * len(names))
    candidates = {name: _candidate(name, sums[name], sums["none"], task) for name in names if name not in failed}
    recommended, ties = _recommended(candidates, sums, task)
    facts = {
        "n": {name: len(each) for name, each in task.sets.items()},
        "relevant_by": task.by,
        "splits": splits,
        "seed": seed,
        "fitted_on": {name: len(rows) for name, rows in split.fit.items()},
        "index": {name: len(rows) for name, rows in split.index.items()},
        "queries": {name: len(rows) for name, rows in split.queries.items()},
    }
    return RepairComparison(candidates, failed, recommended, ties, _front(candidates), facts)


class _Search:
    """The held-out index of a split, searched with the scores of any repair."""

    def __init__(self, task: Task, split: Split):
        self.items, self.relevance = task.rows(split.index), task.relevance(split.index)
        assert self.relevance is not None
        # places of the queries within the index
        self.queries = {name: np.searchsorted(split.index[name], rows) for name, rows in split.queries.items()}
        self.before: dict[tuple[str, int], np.ndarray] = {}  # own neighbors without a repair, which is run first

    def run(self, repair: Repair) -> dict[str, dict[str, np.ndarray]]:
        """Modality of the queries → number → a value for each query."""
        found = {}
        for query, places in self.queries.items():
            blocks = [
                self._block(repair, query, places[start : start + BLOCK]) for start in range(0, len(places), BLOCK)
            ]
            found[query] = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
        return found

    def _block(self, repair: Repair, query: str, places: np.ndarray) -> dict[str, np.ndarray]:
        scores = repair.mixed(query, self.items[query][places], self.items, places)
        best = np.full(len(places), -np.inf)  # of the relevant items of other modalities
        irrelevant = {}
        for item, each in scores.items():
            if item != query:
                numbers = torch.arange(each.shape[1]).expand(len(places), -1)
                relevant = self.relevance.tables[query, item].grades(torch.from_numpy(places), numbers).numpy() > 0
                best = np.maximum(best, np.where(relevant, each, -np.inf).max(1))
                irrelevant[item] = np.where(relevant, -np.inf, each)
        across = sum((each >= best[:, None]).sum(1) for each in irrelevant.values())
        rank = 1.0 + across + (scores[query] >= best[:, None]).sum(1)
        undefined = np.isneginf(best)
        k = min(K, scores[query].shape[1] - 1)
        near = np.sort(np.argpartition(-scores[query], k - 1, axis=1)[:, :k], axis=1)
        before = self.before.setdefault((query, int(places[0])), near)
        two_sided = two_sided_scores(scores, self.relevance, query, queries=places, k=min(K, sum(map(len, self.items.values())) - 1))
        return {
            "found": np.where(undefined, np.nan, 1 / rank),
            "first": np.where(undefined, np.nan, rank == 1),
            "own_share": two_sided[f"share.{query}"],
            "cross_first": np.where(undefined, np.nan, across == 0),
            "overlap": np.array([len(np.intersect1d(a, b)) / k for a, b in zip(before, near, strict=True)]),
            "precision": two_sided["precision"],
            "ndcg": two_sided["ndcg"],
        }


class _Sums:
    """The values of every row as a query, summed over the splits that it was a query in."""

    def __init__(self, task: Task):
        self.task = task
        self.totals = {name: {number: np.zeros(len(each)) for number in NUMBERS} for name, each in task.sets.items()}
        self.counts = {name: {number: np.zeros(len(each)) for number in NUMBERS} for name, each in task.sets.items()}

    def add(self, query: str, rows: np.ndarray, numbers: Mapping[str, np.ndarray]) -> None:
        for number, values in numbers.items():
            known = ~np.isnan(values)
            self.totals[query][number][rows[known]] += values[known]
            self.counts[query][number][rows[known]] += 1

    def means(self, query: str, number: str) -> np.ndarray:
        """The mean of each row, NaN for one that was never a query."""
        counts = self.counts[query][number]
        return np.divide(self.totals[query][number], counts, out=np.full(len(counts), np.nan), where=counts > 0)


def _estimate(values: Mapping[str, np.ndarray], task: Task) -> Estimate | None:
    """The mean over modalities of the mean over their queries; rows of one item are one observation."""
    influences: dict[int, float] = {}
    means, alone = [], 0
    for name, each in values.items():
        rows = np.flatnonzero(~np.isnan(each))
        if len(rows):
            means.append(each[rows].mean())
            group = task.groups[name]
            keys = group[rows] if group is not None else -1 - alone - np.arange(len(rows))
            alone += len(rows) * (group is None)
            for key, part in zip(keys.tolist(), (each[rows] - means[-1]) / len(rows), strict=True):
                influences[key] = influences.get(key, 0.0) + part
    if not means:
        return None
    correction = len(influences) / max(1, len(influences) - 1)
    return Estimate(
        float(np.mean(means)), float(np.sqrt(correction * sum(v * v for v in influences.values())) / len(means))
    )


def _change(one: _Sums, other: _Sums, number: str, task: Task) -> dict[str, Estimate]:
    """The paired difference of a number, of all queries and by modality."""
    differences = {query: one.means(query, number) - other.means(query, number) for query in task.modalities}
    return _estimates(differences, number, task)


def _estimates(values: Mapping[str, np.ndarray], number: str, task: Task) -> dict[str, Estimate]:
    named = {number: values} | {f"{number}.{query}": {query: each} for query, each in values.items()}
    found = {name: _estimate(each, task) for name, each in named.items()}
    return {name: each for name, each in found.items() if each is not None}


def _candidate(name: str, sums: _Sums, none: _Sums, task: Task) -> Candidate:
    numbers, changes = {}, {}
    for number in NUMBERS:
        numbers |= _estimates({query: sums.means(query, number) for query in task.modalities}, number, task)
        changes |= _change(sums, none, number, task)
    costs = []
    for query in task.modalities:
        lost = changes.get(f"cross_first.{query}")
        if lost is not None and lost.value < -lost.error:
            costs.append(f"recall of {query} queries across modalities {lost.value:+.3f} ± {lost.error:.3f}")
        kept = numbers.get(f"overlap.{query}")
        if kept is not None and kept.value < LEAST_OVERLAP:
            costs.append(f"{1 - kept.value:.0%} of the nearest {query} rows of {query} queries change")
        precision = changes.get(f"precision.{query}")
        if task.complete and precision is not None and precision.value < -MOST_PRECISION:
            costs.append(f"precision of {query} queries {precision.value:+.3f} ± {precision.error:.3f}")
    return Candidate(name, numbers, changes, tuple(costs))


def _recommended(
    candidates: Mapping[str, Candidate], sums: Mapping[str, _Sums], task: Task
) -> tuple[str, tuple[str, ...]]:
    """The repair of least effort among those that tie with the best of those that cost nothing, and all of these."""
    free = [name for name, each in candidates.items() if not each.costs]
    best = max(free, key=lambda name: candidates[name].numbers[AIM].value)
    ties = []
    for name in free:
        behind = _change(sums[best], sums[name], AIM, task)[AIM]
        if behind.value <= TIE * behind.error:
            ties.append(name)
    least = min(candidates[name].effort for name in ties)
    easiest = [name for name in ties if candidates[name].effort == least]
    return max(easiest, key=lambda name: candidates[name].numbers[AIM].value), tuple(ties)


def _front(candidates: Mapping[str, Candidate]) -> tuple[str, ...]:
    """The repairs that none beats both in what is found and in recall across modalities."""
    points = {name: (each.numbers[AIM].value, each.numbers["cross_first"].value) for name, each in candidates.items()}
    return tuple(
        name
        for name, (found, recall) in points.items()
        if not any(f >= found and r >= recall and (f, r) != (found, recall) for f, r in points.values())
    )
