"""Published beside ours: which rows of a run stand beside which numbers, how far off they are, and why.

Selectors of result rows look like `{measure: zero_shot.top_1, at.split: test, pipeline: "normalize,center"}`. A nested
field is written with a dot. A list means any of these values, null that the field is missing, a star any text; a
pipeline is written as on the command line, "" for raw rows.
"""

import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clip_geometry.results import ORIGIN, Row
from clip_geometry_experiments.published.ledger import LedgerEntry, Scalar, Variant, Where, all_entries

IDENTITY = (*ORIGIN, "measure", "at", "n", "d", "command")  # rows that agree in these but for seeds are one number
SEEDS = ("seed", "*.seed")
ERRORS = 2  # standard errors within which a difference says nothing


@dataclass(frozen=True)
class Ours:
    """A value of ours, in the published unit.

    Args:
        row: The result row; the first one where `seeds` > 1 rows were averaged.
        variant: The variant of the published number.
        value: Its value.
        error: Its standard error; the standard deviation over seeds where `seeds` > 1. None where it is 0 or not known,
            as of a number of all seeds pooled.
        unlike: The fields that differ from the paper's setup; `setup` where the source does not name its own.
        seeds: How many rows were averaged.
        null: Its null value.
        limit: For a share of 0 or 1, whose estimated error is 0: its one-sided 95% limit, at two of `error`.
    """

    row: Row
    variant: Variant
    value: float
    error: float | None
    unlike: tuple[str, ...]
    seeds: int = 1
    null: float | None = None
    limit: float | None = None

    @property
    def comparable(self) -> bool:
        """Whether it has the paper's own setup."""
        return not self.unlike


@dataclass(frozen=True)
class Compared:
    """A published number and our values beside it."""

    entry: LedgerEntry
    ours: tuple[Ours, ...]

    @property
    def comparable(self) -> bool:
        """Whether the paper's own setup was run."""
        return any(each.comparable for each in self.ours)

    def agrees(self, ours: Ours) -> bool:
        """Whether both are equal when rounded to the decimals that were printed."""
        printed = self.entry.published
        return printed.value is not None and round(ours.value, printed.decimals) == printed.value


def compare(rows: Iterable[Row], run: str, among: Sequence[LedgerEntry] | None = None) -> list[Compared]:
    """Compare the rows of a run with the published numbers.

    Args:
        rows: Result rows.
        run: The name of the run.
        among: The entries of the ledger to look at, all by default.

    Returns:
        A line for every entry that a run of this name gives, even where no row fits it.
    """
    valued = [(row, flat(row)) for row in rows if _has_value(row)]
    entries = all_entries() if among is None else among
    return [Compared(entry, _ours(entry, valued)) for entry in entries if run in entry.runs]


def selected(rows: Iterable[Row], run: str) -> list[Row]:
    """The rows that stand beside some published number."""
    wheres = [variant.where for entry in all_entries() if run in entry.runs for variant in entry.variants]
    return [row for row in rows if _has_value(row) and any(matches(flat(row), where) for where in wheres)]


def _ours(entry: LedgerEntry, valued: Sequence[tuple[Row, Mapping[str, Any]]]) -> tuple[Ours, ...]:
    found = []
    for variant in entry.variants:
        over_seeds: dict[str, dict[str, Row]] = {}  # of equal seeds the last one counts
        for row, fields in valued:
            if matches(fields, variant.where):
                seeds = {key: value for key, value in fields.items() if fits(key, SEEDS)}
                kept = (key for key in fields if key.split(".")[0] in IDENTITY and key not in seeds)
                over_seeds.setdefault(_key({key: fields[key] for key in kept}), {})[_key(seeds)] = row
        found += [_averaged(entry, variant, list(rows.values())) for rows in over_seeds.values()]
    return tuple(found)


def _averaged(entry: LedgerEntry, variant: Variant, rows: Sequence[Row]) -> Ours:
    """The mean of rows that differ in their seeds only."""
    row, fields, same, unit = rows[0], flat(rows[0]), entry.rule.same, entry.rule.unit
    unlike = tuple(key for key, wanted in same.items() if not fits(fields.get(key), wanted)) if same else ("setup",)
    scale = entry.factor
    values = [scale * float(each["value"]) for each in rows]
    value, error = statistics.fmean(values), row.get("standard_error")
    if error is not None:
        error = scale * float(error)
    if len(values) > 1:
        error = statistics.stdev(values)
    # of a "share" every row counts alike, so that its limit needs no error; a share of the rows of the fit bounds none
    is_share = unit is not None and (error == 0 or (error is None and unit == "share"))
    limit = None if not is_share or row["measure"].endswith(".train") else _limit(value, scale, row["n"])
    if limit is not None:
        error = abs(limit - value) / ERRORS
    null = row.get("null_value")
    if null is None or "seed_values" in row:  # of pooled seeds, the null value is that of their mean, another statistic
        null = row.get("null_pooled")
    null = None if null is None else scale * float(null)
    return Ours(row, variant, value, error or None, unlike, len(values), null, limit)


def _limit(share: float, whole: float, n: int) -> float | None:
    """The one-sided 95% limit of a share of n rows, if it is 0 or `whole`: what gives none of n with a chance of 5%."""
    most = whole * (1 - 0.05 ** (1 / n))
    return most if share == 0 else whole - most if share == whole else None


def _key(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, default=str)


def _has_value(row: Row) -> bool:
    value = row.get("value")
    return isinstance(value, int | float) and not isinstance(value, bool)


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """{"at": {"split": "test"}, "pipeline": [a, b]} → {"at.split": "test", "pipeline": "a,b"}"""
    fields = {key: value for key, value in _fields(row, "") if value is not None}
    return fields | {"pipeline": ",".join(map(str, row.get("pipeline") or ()))}


def _fields(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        if isinstance(part, Mapping):
            yield from _fields(part, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(part) if isinstance(part, list | tuple) else part


def matches(fields: Mapping[str, Any], where: Where) -> bool:
    """Whether a flat row fulfils all selectors."""
    return all(fits(fields.get(key), wanted) for key, wanted in where.items())


def fits(value: Any, wanted: Scalar | tuple[Scalar, ...]) -> bool:
    if isinstance(wanted, tuple):
        return any(fits(value, each) for each in wanted)
    if isinstance(wanted, str) and isinstance(value, str):
        return re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), value, re.DOTALL) is not None
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
