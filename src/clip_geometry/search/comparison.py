"""Comparison of repairs of a mixed index by repeated cross-validation, with paired errors and a recommendation."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from clip_geometry.display.table import Table, TableColumn
from clip_geometry.display.words import Words
from clip_geometry.memory import give_back
from clip_geometry.progress import Progress, quiet
from clip_geometry.registry import InputError, instance
from clip_geometry.rows.arguments import one_of, whole_number
from clip_geometry.rows.streamed import release
from clip_geometry.rows.threads import side_by_side
from clip_geometry.search.held_out import NUMBERS, HeldOutSearch, SearchEstimate, SearchNumbers
from clip_geometry.search.mixed_index import MixedIndex, Split
from clip_geometry.search.repairs import InnerProduct, Known, Repair, make_repair, repairs
from clip_geometry.search.repairs.maps import OtherOnly, ReciprocalRank
from clip_geometry.transforms import RankWarning

WORDS = Words(Path(__file__).with_name("verdict.j2"))
Want: TypeAlias = Literal["pairs", "both"]

AIMS: Mapping[str, str] = {"pairs": "mrr", "both": "both"}  # goal → the number that it is judged by
# what a repair may cost; the goal "pairs" deliberately gives up results and neighbors of the own modality
COSTS: Mapping[str, tuple[str, ...]] = {"pairs": ("recall",), "both": ("recall", "neighbors", "precision", "own")}
LEAST_OVERLAP = 0.95  # share of the neighbors within a modality that a repair must keep
LEAST_KEPT = 0.5  # share of the own-modality results of the list without a repair that a repair must keep
MOST_PRECISION = 0.05  # largest loss of precision that a repair may cause
LIMITS = {"most_fit": 1000, "most_searched": 2500, "most_queries": 500}  # per half: items, and queries of each modality
FOLDS = 10  # folds for the search in the full index
MOST_FIT = 2000  # items on which a repair to be served is fitted
MOST_FULL = 10_000  # largest number of items that are all searched
MOST_ASKED = 100  # queries per modality and fold in the full index
SURE = 3.0  # standard errors above chance
BEYOND = 2.0  # standard errors beyond which a change counts as a loss
COLUMNS = ("r_at_1", "kept", "cross_r_at_1", "neighbors", "precision")  # columns of the table, after the goal's number
SPARE = ("neighbors", "precision", "r_at_1", "kept")  # columns to drop, in this order, if the terminal is too narrow


class Cost(NamedTuple):
    """Why a repair is not recommended.

    Attributes:
        of: What the repair loses: "recall", "neighbors", "precision" or "own" (results of the query's own modality).
        query: Modality of the queries, or "all".
        estimate: The change; for neighbors and own results, the share that is kept.
    """

    of: str
    query: str
    estimate: SearchEstimate

    def __str__(self) -> str:
        return WORDS("cost", cost=self)


class Serving(NamedTuple):
    """What an index needs in order to serve a repair.

    The most costly requirement comes first, so comparing tuples compares costs.

    Attributes:
        reranker: Whether scores are not an inner product of rows, so the results have to be sorted again.
        indexes: Number of indexes.
        columns: Number of columns of a row.
        length: Mean length of the rows. If it is not 1, the metric has to be the inner product.
    """

    reranker: bool
    indexes: int
    columns: int
    length: float = 1.0

    def __str__(self) -> str:
        return WORDS("needs", serving=self)


UNKNOWN = Serving(False, 1, 0)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A compared repair: what it gains and costs in searches of held-out items.

    Attributes:
        name: Name of the repair.
        numbers: Name of a number → its mean over the queries of all modalities; also per modality, as
            "number.modality".
        changes: Name of a number → its change relative to no repair, with a paired standard error.
        costs: What the repair makes worse, as reasons not to recommend it; empty if it makes nothing worse beyond
            noise.
        serving: What a vector database needs to serve the repair: number of indexes, columns, metric and reranker.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> item = rng.normal(size=(100, 16))
        >>> image, text = (item + 0.5 * rng.normal(size=(100, 16)) for _ in range(2))
        >>> candidates = cg.diagnose(image + 2, text - 2, repairs=["zscore"], splits=4).comparison.candidates
        >>> isinstance(candidates["zscore"], cg.search.Candidate), candidates["zscore"].costs
        (True, ())
        >>> {name: round(candidate.numbers["hit_at_10"].value, 1) for name, candidate in candidates.items()}
        {'none': 0.0, 'zscore': 0.6}
    """

    name: str
    numbers: Mapping[str, SearchEstimate]
    changes: Mapping[str, SearchEstimate]
    costs: tuple[Cost, ...]
    serving: Serving = UNKNOWN

    @property
    def baseline(self) -> bool:
        """Whether this is a baseline, such as one search per modality, which leaves the rows unchanged."""
        return repairs[self.name].baseline


@dataclass(frozen=True, eq=False)
class RepairComparison:
    """Result of `compare_repairs`: which repair helps a mixed index, what it costs, and which one is recommended.

    A repair is a change of the rows or of the scores of an index with several modalities. "none" stands for no repair.
    A baseline, such as one search per modality, leaves the rows unchanged.

    Attributes:
        candidates: Name of a repair → `Candidate`; "none" comes first.
        failed: Name of a repair → why it could not be fitted.
        recommended: The recommended repair or baseline; "none" if nothing helps beyond noise.
        ties: Repairs that make nothing worse beyond noise and whose number for the goal is within one standard error of
            the best such repair.
        front: Repairs on the Pareto front: no other repair is better both in the number for the goal and in ordinary
            recall.
        full: The results of "none", of the recommended repair and of `served()` for the index of all items instead of
            the held-out ones. Repairs that memorize the rows of the fit are left out.
        facts: Sizes, splits, seed and sampling of the comparison; the recall at 1 across modalities that is expected by
            chance; the modalities that are not split ("whole"), and those in which no two rows share a label ("alone").

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> item = rng.normal(size=(100, 16))
        >>> image, text = (item + 0.5 * rng.normal(size=(100, 16)) for _ in range(2))
        >>> comparison = cg.diagnose(image + 2, text - 2, repairs=["zscore"], splits=4).comparison
        >>> isinstance(comparison, cg.search.RepairComparison), list(comparison.candidates), comparison.recommended
        (True, ['none', 'zscore'], 'zscore')
    """

    candidates: Mapping[str, Candidate]
    failed: Mapping[str, str]
    recommended: str
    ties: tuple[str, ...]
    front: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    full: Mapping[str, Candidate] = field(default_factory=dict)

    @property
    def want(self) -> Want:
        """The goal: "both" or "pairs"."""
        return self.facts.get("want", "both")

    @property
    def aim(self) -> str:
        """The number by which the goal is judged: "both" or "mrr"."""
        return AIMS[self.want]

    def ranked(self) -> list[Candidate]:
        """Return the repairs as `Candidate` objects, best first by the number for the goal."""
        return sorted(self.candidates.values(), key=lambda candidate: -candidate.numbers[self.aim].value)

    def state(self, name: str) -> str:
        """Return the status of a repair: "recommended", "tie", "baseline", "costs …", a combination of these, or ""."""
        states = []
        if name == self.recommended:
            states.append("recommended")
        elif name in self.ties:
            states.append("tie")
        elif self.candidates[name].baseline:
            states.append("baseline")
        if self.candidates[name].costs:
            losses = dict.fromkeys(cost.of for cost in self.candidates[name].costs)
            states.append(f"costs {', '.join(losses)}")
        return ", ".join(states)

    def helping(self) -> list[Candidate]:
        """Return the repairs that improve the goal's number, best first, without baselines."""
        chance = self.facts.get("chance", 0.0)
        repaired = [candidate for candidate in self.ranked() if not candidate.baseline]
        return [candidate for candidate in repaired if helps(candidate, self.aim, chance)]

    def served(self) -> Candidate | None:
        """Return the best repair that helps, has no costs and needs only one index; None if there is none."""
        for candidate in self.helping():
            if not (candidate.costs or candidate.serving.reranker) and candidate.serving.indexes == 1:
                return candidate
        return None

    def table(self) -> Table:
        """Return a table of the repairs with their numbers; only the goal's number is shown with its error."""
        labels = self.facts["relevant_by"] == "labels"
        names = [name for name in COLUMNS if labels or name != "precision"]  # pairs miss other relevant items
        heads = {name: "recall" if name == "cross_r_at_1" else name for name in (self.aim, *names)}
        rows = []
        for candidate in self.ranked():
            numbers, serving = candidate.numbers, candidate.serving
            goal = f"{numbers[self.aim].value:.3f} ± {numbers[self.aim].error:.3f}"
            others = (f"{numbers[name].value:.3f}" if name in numbers else "–" for name in names)
            needs = f"{serving.indexes} × {serving.columns:,}" if serving.indexes > 1 else f"{serving.columns:,}"
            if serving.reranker:
                needs += " +"
            rows.append([candidate.name, goal, *others, needs, self.state(candidate.name)])
        spare = {name: SPARE.index(name) + 1 if name in SPARE else 0 for name in heads}
        numbers = [TableColumn(head, "number", spare=spare[name]) for name, head in heads.items()]
        legend = [f"{head}: {NUMBERS[name]}" for name, head in heads.items()]
        return Table(
            [TableColumn("repair"), *numbers, TableColumn("columns", "number"), TableColumn("verdict")],
            {"": rows},
            legend=[*legend, "columns: number of indexes × columns of their rows; +: a reranker"],
            notes=[
                WORDS("conditions", facts=self.facts),
                *(f"{name} was left out: {reason}" for name, reason in self.failed.items()),
            ],
        )


def compare_repairs(
    index: MixedIndex,
    names: Sequence[str] | None = None,
    *,
    want: Want = "both",
    splits: int = 10,
    seed: int = 0,
    progress: Progress = quiet,
) -> RepairComparison:
    """Fit repairs on random halves of the items, and evaluate them by searches in the other halves.

    A repair is a change of the rows or of the scores of a mixed index, such as standardizing the scores of each
    modality, so that one list contains relevant items of all modalities. `diagnose` does the same after it has checked
    the rows.

    Args:
        index: The index, with labels or pairs that say what is relevant.
        names: Names of the repairs, from `clip-geometry list repairs`. Default: the baselines, and all repairs that a
            vector database can serve. "none", no repair, is always included.
        want: Goal of a search. "both": a list with relevant items of both modalities. "pairs": the relevant item of
            another modality comes first.
        splits: Number of random halves.
        seed: Seed of the splits.
        progress: Called as in `cg.embed`; the unit is one fit of a repair.

    Returns:
        A `RepairComparison` with the numbers of each repair and a recommendation.

    Raises:
        InputError: A repair is unknown, there is only one modality, or the index has neither labels nor pairs.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> item = rng.normal(size=(100, 16))
        >>> image, text = (item + 0.5 * rng.normal(size=(100, 16)) for _ in range(2))
        >>> sets = {"image": cg.Embeddings(image + 2, "image"), "text": cg.Embeddings(text - 2, "text")}
        >>> comparison = cg.search.compare_repairs(cg.search.MixedIndex.of(sets), ["zscore"], splits=4)
        >>> comparison.recommended, comparison.candidates["zscore"].costs
        ('zscore', ())
    """
    instance(index, MixedIndex, "index", "a MixedIndex")
    instance(progress, Callable, "progress", "a function")
    one_of(want, "want", AIMS)
    if len(index.modalities) < 2:
        raise InputError(f"only {index.modalities[0]} rows were given; repairs of a mixed index need two modalities")
    splits = whole_number(splits, "splits", most=1000)
    if names is None:
        names = [name for name, entry in repairs.items() if not entry.reranker]
    names = list(dict.fromkeys(("none", *names)))
    for name in names:
        repairs[name]  # raises for an unknown name
    halves = list(index.splits(splits, seed=seed, **LIMITS))
    with progress("fits of repairs", splits * len(names)) as advance:
        sums, serving, failed, chances = _search(index, halves, names, advance)
    candidates = {
        name: _candidate(name, sums[name], sums["none"], index, want, serving[name])
        for name in names
        if name not in failed
    }
    if "mrr" not in candidates["none"].numbers:
        raise InputError("no held-out query has a relevant item of another modality; give more pairs or labels")
    chance = float(np.mean(chances))
    recommended, ties = _recommended(candidates, AIMS[want], chance)
    alone = [name for name, codes in index.codes.items() if index.complete and len(np.unique(codes)) == len(codes)]
    facts = {
        "n": {name: len(rows) for name, rows in index.sets.items()},
        "relevant_by": index.by,
        "splits": splits,
        "seed": seed,
        "fitted_on": {name: len(rows) for name, rows in halves[0].fit.items()},
        "index": {name: len(rows) for name, rows in halves[0].searched.items()},
        "queries": {name: len(rows) for name, rows in halves[0].queries.items()},
        "want": want,
        "chance": chance,
        "whole": index.whole,
        "alone": alone,
        "unused_labels": [] if index.codes else [name for name, rows in index.sets.items() if rows.labels is not None],
    }
    comparison = RepairComparison(candidates, failed, recommended, ties, _front(candidates, AIMS[want]), facts)
    return replace(comparison, full=_full(comparison, index, sums))


def _search(
    index: MixedIndex, splits: Sequence[Split], names: Sequence[str], advance: Callable[[int], Any]
) -> tuple[dict[str, SearchNumbers], dict[str, Serving], dict[str, str], list[float]]:
    """Fit repairs in each split and search with them, "none" first.

    Two splits run at a time with one thread each, because threads that share products of a few hundred rows wait for
    each other.

    Returns:
        By repair: the results of its queries, what an index needs to serve it, and why it could not be fitted. Then the
        recalls at 1 of items in random order.
    """

    def evaluated(split: Split) -> tuple[Any, ...]:
        known = index.known(split.fit, kept={})
        search = HeldOutSearch(index, split)
        numbers, serving, failed = {}, {}, {}
        for name in names:
            try:
                repair = make_repair(name).fit(known)
            except InputError as error:
                failed[name] = str(error)
                continue
            numbers[name] = search.run(repair)
            give_back()  # in every thread, since freed blocks stay fragmented
            if split is splits[0]:
                serving[name] = serving_of(repair, known)
        return numbers, serving, failed, search.chances()

    sums = {name: SearchNumbers(index) for name in names}
    serving, failed, chances = {}, {}, []
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore", RankWarning)  # the numbers show the effect of too few rows
        for numbers, split_serving, split_failed, split_chances in side_by_side(evaluated, splits):
            serving = split_serving | serving
            failed = split_failed | failed
            chances += split_chances
            for name in numbers:
                sums[name] += numbers[name]
            advance(len(names))
            for embeddings in index.sets.values():
                release(embeddings.vectors)
            give_back()
    return sums, serving, failed, chances


def _full(compared: RepairComparison, index: MixedIndex, held_out: Mapping[str, SearchNumbers]) -> dict[str, Candidate]:
    """Compute the numbers of "none" and of the recommended repairs in an index of all items.

    Each item is a query once, with repairs that are fitted without it. The other items were fitted on, as they are when
    a repair is in use, so repairs that memorize them are left out. If there are more than `MOST_FULL` items, a sample
    of them is searched with fewer queries, and the results are extrapolated to all items along the line through this
    size and the size of the held-out index (see `SearchNumbers.extrapolated`).
    """
    served = compared.served()
    facts = compared.facts
    names = ["none", compared.recommended, *([served.name] if served else [])]
    names = [name for name in dict.fromkeys(names) if not make_repair(name).memorizes]
    limits = {"most_fit": MOST_FIT, "most_searched": MOST_FULL, "most_queries": MOST_ASKED}
    folds = list(index.folds(max(2, min(facts["splits"], FOLDS)), seed=facts["seed"], **limits))
    sums, _, failed, _ = _search(index, folds, names, lambda _: None)
    for reason in failed.values():
        raise InputError(reason)
    n = len(index.items)
    if n > MOST_FULL:
        searched = min(-(-n // 2), LIMITS["most_searched"])
        beyond = float(np.log(n / MOST_FULL) / np.log(MOST_FULL / searched))
        sums = {name: numbers.extrapolated(held_out[name], beyond) for name, numbers in sums.items()}
    full = {}
    for name, numbers in sums.items():
        candidate = compared.candidates[name]
        full[name] = replace(
            candidate,
            numbers=_with_split_errors(numbers.estimates(), candidate.numbers),
            changes=_with_split_errors(numbers.estimates(less=sums["none"]), candidate.changes),
        )
    return full


def _with_split_errors(
    estimates: Mapping[str, SearchEstimate], held_out: Mapping[str, SearchEstimate]
) -> dict[str, SearchEstimate]:
    """Return the estimates in the full index with the split errors of the held-out ones.

    In the full index each item is a query once, so its folds do not show how much the choice of items to fit on
    matters.
    """
    return {key: SearchEstimate(*estimates[key][:2], *held_out[key][2:]) for key in estimates if key in held_out}


def serving_of(repair: Repair, known: Known) -> Serving:
    """Return what an index needs in order to serve a fitted repair as `clip-geometry ship` writes it."""
    from clip_geometry.search.shipping.rows import indexes_of

    rows = {name: x[:100] for name, x in known.rows.items()}
    d = next(iter(rows.values())).shape[1]
    if isinstance(repair, OtherOnly):
        return Serving(False, 1, d)  # one view of the rows, with a filter
    if isinstance(repair, ReciprocalRank):
        return Serving(False, len(rows), len(repair.views_) * d)
    if not isinstance(repair, InnerProduct):
        return Serving(True, 1, d * len(getattr(repair, "views_", "1")))
    indexes = [
        np.concatenate([item_map(rows[name]) for name, item_map in index.items.items()])
        for index in indexes_of(repair, rows)
    ]
    lengths = np.concatenate([np.linalg.norm(index_rows, axis=1) for index_rows in indexes])
    return Serving(False, len(indexes), indexes[0].shape[1], float(lengths.mean()))


def _candidate(
    name: str, sums: SearchNumbers, none: SearchNumbers, index: MixedIndex, want: Want, serving: Serving
) -> Candidate:
    """Return the numbers of a repair, their change from no repair, and what the repair costs."""
    numbers = sums.estimates()
    changes = sums.estimates(less=none)
    costs = []
    before = {key: estimate.value - changes[key].value for key, estimate in numbers.items()}
    for query in index.modalities:
        for lost, estimate, limit in (
            ("recall", changes.get(f"cross_r_at_1.{query}"), 0.0),
            ("neighbors", numbers.get(f"neighbors.{query}"), LEAST_OVERLAP),
            ("precision", changes.get(f"precision.{query}") if index.complete else None, -MOST_PRECISION),
            ("own", numbers.get(f"kept.{query}"), LEAST_KEPT * before.get(f"kept.{query}", 0.0)),
        ):
            if estimate is not None and estimate.value + BEYOND * estimate.error < limit:
                costs.append(Cost(lost, query, estimate))
    change = changes.get("cross_r_at_1")
    if change is not None and change.value < -BEYOND * change.error and not any(cost.of == "recall" for cost in costs):
        costs.append(Cost("recall", "all", change))  # within the error for each modality, but not for all together
    return Candidate(name, numbers, changes, tuple(cost for cost in costs if cost.of in COSTS[want]), serving)


def helps(candidate: Candidate, aim: str, chance: float) -> bool:
    """Return whether a repair improves the goal's number beyond noise.

    Any repair that puts the other modality first raises the reciprocal rank, even if items are in random order.
    Therefore a repair counts only if its recall at 1 across modalities is above chance.
    """
    across = candidate.numbers["cross_r_at_1"]
    change = candidate.changes[aim]
    low = change.interval()[0] if change.splits > 1 else change.value - BEYOND * change.error
    return low > 0 and across.value - chance > SURE * across.error


def _recommended(candidates: Mapping[str, Candidate], aim: str, chance: float) -> tuple[str, tuple[str, ...]]:
    """Return the recommended repair and the ties it was chosen from, by the one-standard-error rule of model selection.

    The ties are the repairs that cost nothing and are within one standard error of every other such repair; the
    recommended one is the cheapest of them to serve. Baselines take part even if they have costs, so the recommended
    repair is not worse than any of them by more than its error.
    """
    free = {
        name: candidate.numbers[aim]
        for name, candidate in candidates.items()
        if name == "none" or (helps(candidate, aim, chance) and (candidate.baseline or not candidate.costs))
    }
    lowest_tie = max(estimate.value - estimate.error for estimate in free.values())
    ties = [name for name, estimate in free.items() if estimate.value >= lowest_tie]
    return min(ties, key=lambda name: (candidates[name].serving[:3], -free[name].value)), tuple(ties)


def _front(candidates: Mapping[str, Candidate], aim: str) -> tuple[str, ...]:
    """Return the repairs that no other beats in both the goal's number and recall across modalities."""
    points = {name: (each.numbers[aim].value, each.numbers["cross_r_at_1"].value) for name, each in candidates.items()}
    return tuple(
        name
        for name, (value, recall) in points.items()
        if not any(v >= value and r >= recall and (v, r) != (value, recall) for v, r in points.values())
    )
