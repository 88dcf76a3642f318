"""Records of compared repairs, and the comparison that records are of."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from clip_geometry.diagnosis.comparison import Candidate, Cost, RepairComparison, Serving
from clip_geometry.diagnosis.search import NUMBERS, Estimate
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row

PREFIX = "mixed_index."
OF = {
    "recall": "cross_r_at_1",
    "neighbors": "neighbors",
    "precision": "precision",
    "own": "kept",
}  # a cost → its number


def records_of(compared: RepairComparison) -> list[Row]:
    """A record for each repair, number and modality of queries, and one for each repair that could not be fitted.

    Beside its value and standard error a record has `change` from no repair with its paired `change_error`; the
    errors of the choice of halves (`split_error`, `change_split_error`); `full`, both in an index of all items, if they
    are known, as value, standard error, split error and splits; `serving`, what an index needs; `state`, what speaks
    for or against the repair; `costs`, the pairs (what, modality of the queries); `recommended`, `tie` and
    `front`; and `facts` of the comparison.
    """
    n = compared.facts["n"]
    everything = "both" if len(n) == 2 else "all"
    rows: list[Row] = []
    for name, each in compared.candidates.items():
        shared = {
            "state": compared.state(name),
            "costs": [[cost.of, cost.query] for cost in each.costs],
            "recommended": name == compared.recommended,
            "tie": name in compared.ties,
            "front": name in compared.front,
            "serving": each.serving._asdict(),
            "facts": dict(compared.facts),
        }
        full = compared.full.get(name)
        for key, estimate in each.numbers.items():
            number, _, query = key.partition(".")
            change = each.changes[key]
            rows.append(
                Record(
                    PREFIX + number,
                    estimate.value,
                    estimate.error,
                    split_error=_finite(estimate.split_error),
                    change=change.value,
                    change_error=change.error,
                    change_split_error=_finite(change.split_error),
                    splits=estimate.splits,
                    n=n[query] if query else sum(n.values()),
                    at={"repair": name, "modality": query or everything},
                    full=_both(full, key),
                    **shared,
                )
            )
    return rows + [
        Record(PREFIX + "mrr", None, note=why, at={"repair": name, "modality": everything}, state="not fitted")
        for name, why in compared.failed.items()
    ]


def _both(full: Candidate | None, key: str) -> Any:
    """A number and its change in the index of all items, as lists."""
    if full is None or key not in full.numbers:
        return None
    return [
        [_finite(each) for each in estimate[:3]] + [estimate.splits]
        for estimate in (full.numbers[key], full.changes[key])
    ]


def comparison_of(rows: Sequence[Row]) -> RepairComparison:
    """The comparison that `records_of` made these records of; other records are left out."""
    found: dict[str, list[Row]] = {}
    failed = {}
    for row in rows:
        if row["measure"].removeprefix(PREFIX) in NUMBERS:
            name = row["at"]["repair"]
            if row["value"] is None:
                failed[name] = row["note"]
            else:
                found.setdefault(name, []).append(row)
    if not found:
        raise InputError("there are no records of repairs; run the experiment first")
    candidates = {name: _candidate(name, of) for name, of in found.items()}
    first = {name: of[0] for name, of in found.items()}
    return RepairComparison(
        candidates,
        failed,
        next(name for name, row in first.items() if row["recommended"]),
        tuple(name for name, row in first.items() if row["tie"]),
        tuple(name for name, row in first.items() if row["front"]),
        next(iter(first.values()))["facts"],
        {name: _candidate(name, of, full=True) for name, of in found.items() if of[0]["full"]},
    )


def _candidate(name: str, rows: Sequence[Row], *, full: bool = False) -> Candidate:
    numbers, changes = {}, {}
    for row in rows:
        query = row["at"]["modality"]
        key = row["measure"].removeprefix(PREFIX) + (f".{query}" if query in row["facts"]["n"] else "")
        if not full:
            numbers[key] = _estimate(row["value"], row["standard_error"], row["split_error"], row["splits"])
            changes[key] = _estimate(row["change"], row["change_error"], row["change_split_error"], row["splits"])
        elif row["full"]:
            numbers[key], changes[key] = (_estimate(*each) for each in row["full"])
    costs = []
    for of, query in rows[0]["costs"]:
        estimates: Mapping[str, Estimate] = numbers if of in ("neighbors", "own") else changes
        costs.append(Cost(of, query, estimates[OF[of] + ("" if query == "all" else f".{query}")]))
    return Candidate(name, numbers, changes, tuple(costs), Serving(**rows[0]["serving"]))


def _estimate(value: float, error: float, split_error: float | None, splits: int) -> Estimate:
    return Estimate(value, error, math.nan if split_error is None else split_error, splits)


def _finite(value: float) -> Any:
    return value if math.isfinite(value) else None
