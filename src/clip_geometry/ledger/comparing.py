"""Published beside ours: which rows of a run stand beside which numbers, how far off they are, and why."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clip_geometry.ledger.entries import Entry, all_entries
from clip_geometry.ledger.rules import Variant
from clip_geometry.ledger.selecting import fits, flat, matches
from clip_geometry.results import ORIGIN, Row

IDENTITY = (*ORIGIN, "measure", "at", "n", "d", "command")  # rows that agree in these but for seeds are one number
SEEDS = ("seed", "*.seed")


@dataclass(frozen=True)
class Ours:
    """A value of ours, in the unit that was published. unlike: the fields in which it is not the paper's setup.

    row: the result row, the first one where `seeds` > 1 rows were averaged; then `error` is their standard deviation,
    else the standard error.
    """

    row: Row
    variant: Variant
    value: float
    error: float | None
    unlike: tuple[str, ...]
    seeds: int = 1

    @property
    def comparable(self) -> bool:
        """Whether it is of the paper's own setup."""
        return not self.unlike


@dataclass(frozen=True)
class Line:
    """A published number and what of ours stands beside it."""

    entry: Entry
    ours: tuple[Ours, ...]

    @property
    def comparable(self) -> bool:
        """Whether the paper's own setup was run."""
        return any(each.comparable for each in self.ours)

    def difference(self, ours: Ours) -> float | None:
        """Ours less published; None where words were published."""
        value = self.entry.published.value
        return None if value is None else ours.value - value

    def agrees(self, ours: Ours) -> bool:
        """Whether ours rounds to what is printed."""
        printed = self.entry.published
        return printed.value is not None and round(ours.value, printed.decimals) == printed.value


def compare(rows: Iterable[Row], run: str, among: Sequence[Entry] | None = None) -> list[Line]:
    """A line for every number of the ledger that a run of this name gives, also where its rows have nothing for it."""
    told = [(row, flat(row)) for row in rows if _has_value(row)]
    entries = all_entries() if among is None else among
    return [Line(entry, _ours(entry, told)) for entry in entries if run in entry.runs]


def selected(rows: Iterable[Row], run: str) -> list[Row]:
    """The rows that stand beside some published number."""
    wheres = [variant.where for entry in all_entries() if run in entry.runs for variant in entry.variants]
    return [row for row in rows if _has_value(row) and any(matches(flat(row), where) for where in wheres)]


def _ours(entry: Entry, told: Sequence[tuple[Row, Mapping[str, Any]]]) -> tuple[Ours, ...]:
    found = []
    for variant in entry.variants:
        over_seeds: dict[str, dict[str, tuple[Row, Mapping[str, Any]]]] = {}  # of equal seeds the last one counts
        for row, fields in told:
            if matches(fields, variant.where):
                over_seeds.setdefault(_but_for_the_seed(fields), {})[_seeds(fields)] = (row, fields)
        found += [_one(entry, variant, list(group.values())) for group in over_seeds.values()]
    return tuple(found)


def _one(entry: Entry, variant: Variant, group: Sequence[tuple[Row, Mapping[str, Any]]]) -> Ours:
    (row, fields), *_ = group
    unlike = tuple(key for key, wanted in entry.rule.same.items() if not fits(fields.get(key), wanted))
    values = [float(each["value"]) for each, _ in group]
    error = statistics.stdev(values) if len(values) > 1 else row.get("standard_error")
    scaled = None if error is None else entry.factor * float(error)
    return Ours(row, variant, entry.factor * statistics.fmean(values), scaled, unlike, len(values))


def _but_for_the_seed(fields: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in fields.items() if key.partition(".")[0] in IDENTITY and not fits(key, SEEDS)}
    return json.dumps(kept, sort_keys=True, default=str)


def _seeds(fields: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in fields.items() if fits(key, SEEDS)}, sort_keys=True, default=str)


def _has_value(row: Row) -> bool:
    value = row.get("value")
    return isinstance(value, int | float) and not isinstance(value, bool)
