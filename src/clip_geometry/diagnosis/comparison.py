"""Repairs of a mixed index compared by repeated cross-validation, with paired errors and a recommendation."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from clip_geometry.diagnosis.index import MixedIndex
from clip_geometry.diagnosis.search import Estimate, Search, Sums
from clip_geometry.geometry._core.arguments import whole_number
from clip_geometry.registry import InputError
from clip_geometry.repairs import InnerProduct, repairs
from clip_geometry.transforms import RankWarning

Progress: TypeAlias = Callable[[int, int], None]  # fits done, fits in all

AIM = "mrr"
COSTS = ("recall", "neighbors", "precision")
LEAST_OVERLAP = 0.95  # of the own modality's neighbors that a repair has to keep
MOST_PRECISION = 0.05  # that a repair may cost
SURE = 3.0  # standard errors above chance
TIE = 2.0  # paired standard errors up to which two repairs are a tie


class Cost(NamedTuple):
    """Why a repair is not recommended.

    Attributes:
        of: What it loses: "recall", "neighbors" or "precision".
        query: Modality of the queries, or "all".
        estimate: The change, or for neighbors the share that is kept.
    """

    of: str
    query: str
    estimate: Estimate

    def __str__(self) -> str:
        value, error = self.estimate[:2]
        if self.of == "neighbors":
            return f"{1 - value:.0%} of the nearest {self.query} rows of {self.query} queries"
        across = " across modalities" * (self.of == "recall")
        return f"{self.of} of {self.query} queries{across} {value:+.3f} ± {error:.3f}".replace("-", "−")


@dataclass(frozen=True, eq=False)
class Candidate:
    """A repair as it did on the held-out halves.

    Attributes:
        name: Of the repair.
        numbers: Number → the mean over the queries of all modalities; by modality under "number.modality".
        changes: The same less the number without a repair, with a paired error.
        costs: Why it is not recommended; empty if it costs nothing beyond noise.

    Example:
        >>> import clip_geometry as cg
        >>> cg.Candidate("posterior[isotonic]", {}, {}, ()).effort
        2
    """

    name: str
    numbers: Mapping[str, Estimate]
    changes: Mapping[str, Estimate]
    costs: tuple[Cost, ...]

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
        recommended: The repair to take, "none" where nothing helps beyond noise; never a baseline.
        ties: Those that cost nothing beyond noise and are within two paired errors of the best of these.
        front: The repairs that no other beats both in what is found and in ordinary recall.
        facts: Sizes, splits, seed, sampling; the chance level of recall at 1 across modalities; the modalities that are
            not split ("whole") and those in which no two rows share a label ("alone").

    Example:
        >>> import clip_geometry as cg
        >>> none = cg.Candidate("none", {}, {}, ())
        >>> cg.RepairComparison({"none": none}, {}, "none", ("none",), ("none",)).recommended
        'none'
    """

    candidates: Mapping[str, Candidate]
    failed: Mapping[str, str]
    recommended: str
    ties: tuple[str, ...]
    front: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def state(self, name: str) -> str:
        """Return what speaks for or against a repair: "costs …", "baseline", "recommended", "tie", or ""."""
        found = self.candidates[name].costs
        if found:
            queries = {of: [cost.query for cost in found if cost.of == of] for of in COSTS}
            return "costs " + ", ".join(f"{of} ({', '.join(each)})" for of, each in queries.items() if each)
        if repairs[name].baseline:
            return "baseline"
        return "recommended" if name == self.recommended else "tie" if name in self.ties else ""


def compare_repairs(
    index: MixedIndex,
    names: Sequence[str] | None = None,
    *,
    splits: int = 10,
    seed: int = 0,
    most_fit: int = 1000,
    most_searched: int = 2500,
    most_queries: int = 500,
    progress: Progress | None = None,
) -> RepairComparison:
    """Fit repairs on random halves of the items and search in the other halves.

    Args:
        index: The index and what is relevant in it.
        names: Repairs; by default all that are registered. "none" is always among them.
        splits: Number of random halves.
        seed: Of the splits.
        most_fit: Items to fit on.
        most_searched: Items to search in.
        most_queries: Queries of each modality and split.
        progress: Called with the number of finished fits and of all.

    Returns:
        The candidates with their numbers, and a recommendation.

    Raises:
        InputError: For unknown repairs, one modality only, and an index without labels or pairs.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> item = rng.normal(size=(100, 16))
        >>> image, text = (item + 0.5 * rng.normal(size=(100, 16)) for _ in range(2))
        >>> sets = {"image": cg.Embeddings(image + 2, "image"), "text": cg.Embeddings(text - 2, "text")}
        >>> found = cg.compare_repairs(cg.MixedIndex.of(sets), ["zscore"], splits=4)
        >>> found.recommended, found.candidates["zscore"].costs
        ('zscore', ())
    """
    if len(index.modalities) < 2:
        raise InputError(f"only {index.modalities[0]} rows were given; repairs of a mixed index need two modalities")
    if index.by is None:
        raise InputError(
            "nothing says which items are relevant; give item ids, rows in order of their pairs, or labels"
        )
    splits = whole_number(splits, "splits", most=1000)
    names = list(dict.fromkeys(("none", *(repairs if names is None else names))))
    entries = {name: repairs[name] for name in names}
    sums: dict[str, Sums] = {name: Sums(index) for name in names}
    failed: dict[str, str] = {}
    chances: list[float] = []
    halves = list(
        index.splits(splits, seed=seed, most_fit=most_fit, most_searched=most_searched, most_queries=most_queries)
    )
    done = 0
    for split in halves:
        known = index.known(split.fit)
        search = Search(index, split)
        chances += search.chances()
        for name, entry in entries.items():
            done += 1
            if name not in failed:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", RankWarning)  # what too few rows do to a map, the numbers show
                        repair = entry.make().fit(known)
                except InputError as error:
                    failed[name] = str(error)
                else:
                    for query, numbers in search.run(repair).items():
                        sums[name].add(query, split.queries[query], numbers)
            if progress is not None:
                progress(done, splits * len(names))
    candidates = {name: _candidate(name, sums[name], sums["none"], index) for name in names if name not in failed}
    if AIM not in candidates["none"].numbers:
        raise InputError("no held-out query has a relevant item of another modality; give more pairs or labels")
    recommended, ties = _recommended(candidates, sums, float(np.mean(chances)))
    alone = [name for name, codes in index.codes.items() if index.complete and len(np.unique(codes)) == len(codes)]
    facts = {
        "n": {name: len(each) for name, each in index.sets.items()},
        "relevant_by": index.by,
        "splits": splits,
        "seed": seed,
        "fitted_on": {name: len(rows) for name, rows in halves[0].fit.items()},
        "index": {name: len(rows) for name, rows in halves[0].searched.items()},
        "queries": {name: len(rows) for name, rows in halves[0].queries.items()},
        "chance": float(np.mean(chances)),
        "whole": [name for name, group in index.groups.items() if group is None],
        "alone": alone,
        "unused_labels": [] if index.codes else [name for name, each in index.sets.items() if each.labels is not None],
    }
    return RepairComparison(candidates, failed, recommended, ties, _front(candidates), facts)


def _candidate(name: str, sums: Sums, none: Sums, index: MixedIndex) -> Candidate:
    numbers, changes = sums.estimates(), sums.estimates(less=none)
    costs = []
    lost = changes.get("cross_r_at_1")
    for query in index.modalities:
        own = changes.get(f"cross_r_at_1.{query}")
        if own is not None and own.value < -own.error:
            costs.append(Cost("recall", query, own))
        kept = numbers.get(f"neighbors.{query}")
        if kept is not None and kept.value < LEAST_OVERLAP:
            costs.append(Cost("neighbors", query, kept))
        precision = changes.get(f"precision.{query}")
        if index.complete and precision is not None and precision.value < -MOST_PRECISION:
            costs.append(Cost("precision", query, precision))
    if lost is not None and lost.value < -lost.error and not any(cost.of == "recall" for cost in costs):
        costs.append(Cost("recall", "all", lost))  # of each modality within its error, of both together not
    return Candidate(name, numbers, changes, tuple(costs))


def _recommended(
    candidates: Mapping[str, Candidate], sums: Mapping[str, Sums], chance: float
) -> tuple[str, tuple[str, ...]]:
    """The repair of least effort among those that tie with the best of those that cost nothing, and all of these.

    Whatever puts the other modality first raises the reciprocal rank, also in random order. So a repair counts only if
    recall at 1 across modalities is above chance with it.
    """
    free = []
    for name, each in candidates.items():
        across, change = each.numbers["cross_r_at_1"], each.changes[AIM]
        low = change.interval()[0] if change.splits > 1 else change.value - TIE * change.error
        helps = low > 0 and across.value - chance > SURE * across.error
        if name == "none" or (helps and not (each.costs or repairs[name].baseline)):
            free.append(name)
    best = max(free, key=lambda name: candidates[name].numbers[AIM].value)
    ties = []
    for name in free:
        behind = sums[best].estimates(less=sums[name])[AIM]
        if behind.value <= TIE * behind.error:
            ties.append(name)
    least = min(candidates[name].effort for name in ties)
    easiest = [name for name in ties if candidates[name].effort == least]
    return max(easiest, key=lambda name: candidates[name].numbers[AIM].value), tuple(ties)


def _front(candidates: Mapping[str, Candidate]) -> tuple[str, ...]:
    """The repairs that none beats both in what is found and in recall across modalities."""
    points = {name: (each.numbers[AIM].value, each.numbers["cross_r_at_1"].value) for name, each in candidates.items()}
    return tuple(
        name
        for name, (found, recall) in points.items()
        if not any(f >= found and r >= recall and (f, r) != (found, recall) for f, r in points.values())
    )
