"""Records of compared repairs, and the comparison that records are of."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from clip_geometry.diagnosis.comparison import Candidate, Cost, RepairComparison
from clip_geometry.diagnosis.search import NUMBERS, Estimate
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row

PREFIX = "mixed_index."
OF = {"recall": "cross_r_at_1", "neighbors": "neighbors", "precision": "precision"}  # a cost → its number


def records_of(compared: RepairComparison) -> list[Row]:
    """A record for each repair, number and modality of queries, and one for each repair that could not be fitted.

    Beside its value and standard error a record has `change` from no repair with its paired `change_error`; the
    errors of the choice of halves (`split_error`, `change_split_error`); `state`, what speaks for or against the
    repair; `costs`, the pairs (what, modality of the queries); `tie` and `front`; and `facts` of the comparison.
    """
    n = compared.facts["n"]
    everything = "both" if len(n) == 2 else "all"
    rows: list[Row] = []
    for name, each in compared.candidates.items():
        shared = {
            "state": compared.state(name),
            "costs": [[cost.of, cost.query] for cost in each.costs],
            "tie": name in compared.ties,
            "front": name in compared.front,
            "facts": dict(compared.facts),
        }
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
                    **shared,
                )
            )
    return rows + [
        Record(PREFIX + "mrr", None, note=why, at={"repair": name, "modality": everything}, state="not fitted")
        for name, why in compared.failed.items()
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
        next(name for name, row in first.items() if row["state"] == "recommended"),
        tuple(name for name, row in first.items() if row["tie"]),
        tuple(name for name, row in first.items() if row["front"]),
        next(iter(first.values()))["facts"],
    )


def _candidate(name: str, rows: Sequence[Row]) -> Candidate:
    numbers, changes = {}, {}
    for row in rows:
        query = row["at"]["modality"]
        key = row["measure"].removeprefix(PREFIX) + (f".{query}" if query in row["facts"]["n"] else "")
        numbers[key] = _estimate(row, "value", "standard_error", "split_error")
        changes[key] = _estimate(row, "change", "change_error", "change_split_error")
    costs = []
    for of, query in rows[0]["costs"]:
        estimates: Mapping[str, Estimate] = numbers if of == "neighbors" else changes
        costs.append(Cost(of, query, estimates[OF[of] + ("" if query == "all" else f".{query}")]))
    return Candidate(name, numbers, changes, tuple(costs))


def _estimate(row: Row, value: str, error: str, split_error: str) -> Estimate:
    fitted = row[split_error]
    return Estimate(row[value], row[error], math.nan if fitted is None else fitted, row["splits"])


def _finite(value: float) -> Any:
    return value if math.isfinite(value) else None
