"""Comparison of published numbers with ours: which rows of a run belong to which number, how far off they are, and why.

Selectors of result rows look like `{measure: zero_shot.top_1, at.split: test, pipeline: "normalize,center"}`. A dot
separates the names of a nested field. A list matches any of its values, null matches a missing field, and a star in a
string matches any text. A pipeline is written as on the command line, with "" for raw rows.
"""

import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clip_geometry.results import ORIGIN, Row
from clip_geometry_experiments.published.ledger import LedgerEntry, Ours, Scalar, Variant, Where, all_entries

# rows that agree in these fields, except for the seeds, are one number
IDENTITY = (*ORIGIN, "measure", "at", "n", "d", "command")
SEEDS = ("seed", "*.seed")
ERRORS = 2  # a difference within this many standard errors is not significant


def compare(rows: Iterable[Row], run: str, among: Sequence[LedgerEntry] | None = None) -> list[LedgerEntry]:
    """Compare the rows of a run with the published numbers.

    Args:
        rows: Result rows.
        run: The name of the run.
        among: The entries of the ledger to consider. Default: all.

    Returns:
        One item for every entry whose rule names this run, even if no row matches it.
    """
    valued = [(row, flat(row)) for row in rows if row.get("value") is not None]
    entries = all_entries() if among is None else among
    return [replace(entry, ours=_ours(entry, valued)) for entry in entries if run in entry.runs]


def selected(rows: Iterable[Row], run: str) -> list[Row]:
    """Return the rows that match at least one published number.

    Args:
        rows: Result rows.
        run: The name of the run.
    """
    wheres = [variant.where for entry in all_entries() if run in entry.runs for variant in entry.variants]
    return [row for row in rows if row.get("value") is not None and any(matches(flat(row), where) for where in wheres)]


def _ours(entry: LedgerEntry, valued: Sequence[tuple[Row, Mapping[str, Any]]]) -> tuple[Ours, ...]:
    """Return our values for a published number: one per variant and setup, averaged over seeds."""
    values = []
    for variant in entry.variants:
        over_seeds: dict[str, dict[str, Row]] = {}  # for equal seeds, the last row counts
        for row, fields in valued:
            if matches(fields, variant.where):
                seeds = {key: value for key, value in fields.items() if fits(key, SEEDS)}
                shared = {
                    key: value for key, value in fields.items() if key.split(".")[0] in IDENTITY and key not in seeds
                }
                over_seeds.setdefault(_key(shared), {})[_key(seeds)] = row
        values += [_averaged(entry, variant, list(rows.values())) for rows in over_seeds.values()]
    return tuple(values)


def _averaged(entry: LedgerEntry, variant: Variant, rows: Sequence[Row]) -> Ours:
    """Return the mean of rows that differ only in their seeds."""
    row = rows[0]
    fields = flat(row)
    same, unit = entry.rule.same, entry.rule.unit
    unlike = tuple(key for key, wanted in same.items() if not fits(fields.get(key), wanted)) if same else ("setup",)
    scale = entry.factor
    values = [scale * float(of_seed["value"]) for of_seed in rows]
    value = statistics.fmean(values)
    error = row.get("standard_error")
    if error is not None:
        error = scale * float(error)
    if len(values) > 1:
        error = statistics.stdev(values)
    # rows of a "share" have equal weights, so its limit needs no error; a share of training rows has no limit
    is_share = unit is not None and (error == 0 or (error is None and unit == "share"))
    limit = None if not is_share or row["measure"].endswith(".train") else _limit(value, scale, row["n"])
    if limit is not None:
        error = abs(limit - value) / ERRORS
    null = row.get("null_value")
    if null is None or "seed_values" in row:  # null_value is of the mean over seeds, another statistic
        null = row.get("null_pooled")
    null = None if null is None else scale * float(null)
    return Ours(row, variant, value, error or None, unlike, len(values), null, limit)


def _limit(share: float, whole: float, n: int) -> float | None:
    """Return the one-sided 95% limit of a share of n rows that is 0 or `whole`; None for other shares.

    For 0, the limit is the share that yields none of n rows with a probability of 5%.
    """
    limit_of_zero = whole * (1 - 0.05 ** (1 / n))
    if share == 0:
        return limit_of_zero
    return whole - limit_of_zero if share == whole else None


def _key(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, default=str)


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with nested keys joined by dots and the pipeline as text.

    {"at": {"split": "test"}, "pipeline": [a, b]} becomes {"at.split": "test", "pipeline": "a,b"}.
    """
    return dict(_fields(row, "")) | {"pipeline": ",".join(map(str, row.get("pipeline") or ()))}


def _fields(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the fields of nested mappings that are not None, with dotted keys."""
    for key, part in value.items():
        if isinstance(part, Mapping):
            yield from _fields(part, f"{prefix}{key}.")
        elif part is not None:
            yield f"{prefix}{key}", json.dumps(part) if isinstance(part, list | tuple) else part


def matches(fields: Mapping[str, Any], where: Where) -> bool:
    """Return whether a flat row fulfills all selectors."""
    return all(fits(fields.get(key), wanted) for key, wanted in where.items())


def fits(value: Any, wanted: Scalar | tuple[Scalar, ...]) -> bool:
    """Return whether a value fulfills a selector.

    Args:
        value: The value; None for a missing field.
        wanted: A value, a string in which a star matches any text, or a tuple of these, of which one has to match.
    """
    if isinstance(wanted, tuple):
        return any(fits(value, each) for each in wanted)
    if isinstance(wanted, str) and isinstance(value, str):
        return re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), value, re.DOTALL) is not None
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
