"""The main table of the report from result rows: groups of measures, each with its sets and, in a sweep, its runs."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from clip_geometry.catalog import GROUPS
from clip_geometry.display.numbers import as_number, bound, number, to_error, with_error
from clip_geometry.display.origin import Row, places, runs, words

SETS = ("image", "text", "both")
SIZE_FIELDS = ("n", "d")
TRACK = 120  # width of the small chart, in its own units
ROUNDING = 1e-9  # values that differ by less are the same

Member = tuple[Row, tuple[str, ...]]  # a row and its cells under the columns that vary


Explanation: TypeAlias = Any  # a Measure, or what has its name, title, summary, reading, caveat, range, unit, …


@dataclass(frozen=True)
class Track:
    """Positions in 0..TRACK of the value, the null value and zero within the range."""

    value: float
    null: float | None
    start: float
    label: str


@dataclass(frozen=True)
class Line:
    """One number. varying: its cells in the columns that vary."""

    modality: str
    varying: tuple[str, ...]
    value: str
    null: str
    note: str
    track: Track | None


@dataclass(frozen=True)
class Block:
    """One measure with all its lines.

    anchor: the id of its explanation, "" if there is none. equal_to: `[cosine]`, a variant equal in all rows, or "".
    """

    name: str
    title: str
    anchor: str
    range: str
    unit: str
    direction: str
    caveat: str
    equal_to: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Table:
    """runs: label and heading of each run, empty for a single run. columns: names of the varying cells."""

    runs: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    groups: tuple[tuple[str, tuple[Block, ...]], ...]

    @property
    def bounded(self) -> bool:
        """Whether any line has a chart of its position within the range."""
        return any(line.track for _, blocks in self.groups for block in blocks for line in block.lines)


def explain(measure: str, explanations: Mapping[str, Explanation]) -> Explanation | None:
    """The explanation of the measure, else of its base (`silhouette` of `silhouette[cosine]`), else None."""
    for name in (measure, measure.partition("[")[0]):
        if name in explanations:
            return explanations[name]
    return None


def anchor(measure: str) -> str:
    """`measure-isotropy_i1-canonical`: an id for a link within the page."""
    return "measure-" + re.sub(r"[^A-Za-z0-9_]+", "-", measure).strip("-")


def build_table(rows: Sequence[Row], explanations: Mapping[str, Explanation]) -> Table:
    """Build the main table.

    Groups are in their fixed order, measures in that of the rows, and within a measure image, text, both. Several runs
    get a column of labels; each key of `at` that varies, n and d get a column too.
    """
    found = runs(rows)
    several = len(found) > 1
    # a row that lacks a field does not make it vary
    sizes = [name for name in SIZE_FIELDS if len({text for row in rows if (text := words(row, name))}) > 1]
    names = (*places(rows), *sizes)
    by_measure: dict[str, list[Member]] = {}
    for run in found:
        for row in run.rows:
            cells = (*((run.label,) if several else ()), *(words(row, name) for name in names))
            by_measure.setdefault(row["measure"], []).append((row, cells))
    groups: dict[str, list[Block]] = {}
    for name, members in by_measure.items():
        explanation = explain(name, explanations)
        group = explanation.group if explanation else "other"
        groups.setdefault(group, []).append(_block(name, members, explanation, _equal_to(name, by_measure)))
    return Table(
        runs=tuple((run.label, run.heading) for run in found) if several else (),
        columns=(*(("run",) if several else ()), *names),
        groups=tuple((group, tuple(groups[group])) for group in sorted(groups, key=group_order)),
    )


def group_order(group: str) -> int:
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


def _equal_to(name: str, by_measure: Mapping[str, Sequence[Member]]) -> str:
    """An earlier variant of the measure that is equal in all rows, as silhouettes are on unit rows; or ""."""
    base = name.partition("[")[0]
    values = _values(by_measure[name])
    for other in itertools.takewhile(lambda other: other != name, by_measure):
        others = _values(by_measure[other])
        if other.partition("[")[0] == base and others.keys() == values.keys():
            pairs = [(as_number(value), as_number(others[place])) for place, value in values.items()]
            if all(x is not None and y is not None and abs(x - y) <= ROUNDING for x, y in pairs):
                return other.removeprefix(base) or base
    return ""


def _values(members: Sequence[Member]) -> dict[tuple[str, tuple[str, ...]], Any]:
    return {(_modality(row), cells): row.get("value") for row, cells in members}


def _block(name: str, members: Sequence[Member], explanation: Explanation | None, equal_to: str) -> Block:
    # sorting is stable: within a set, runs keep their order
    order = {modality: k for k, modality in enumerate(SETS)}
    ordered = sorted(members, key=lambda member: order.get(_modality(member[0]), len(SETS)))
    near = [row.get(key) for row, _ in members for key in ("value", "null_value")]  # read beside each other
    lines = []
    for row, cells in ordered:
        value, error = as_number(row.get("value")), row.get("standard_error")
        line = Line(
            modality=_modality(row),
            varying=cells,
            value="" if value is None else with_error(row, *near),
            null=to_error(row.get("null_value"), error, *near),
            note=row.get("note") or ("not a finite number" if value is None else ""),
            track=track(row, explanation.range) if explanation else None,
        )
        lines.append(line)
    if explanation is None:
        return Block(name, name, "", "", "", "", "", equal_to, tuple(lines))
    low, high = explanation.range
    # a variant that is explained under its base name keeps the variant in its title
    suffix = "" if explanation.name == name else f" [{name.partition('[')[2]}"
    return Block(
        name=name,
        title=explanation.title + suffix,
        anchor=anchor(explanation.name),
        range=f"{bound(low)} to {bound(high)}",
        unit=explanation.unit,
        direction=explanation.direction,
        caveat=explanation.caveat,
        equal_to=equal_to,
        lines=tuple(lines),
    )


def _modality(row: Row) -> str:
    return str((row.get("at") or {}).get("modality") or "")


def track(row: Row, limits: tuple[float | str, float | str]) -> Track | None:
    """Positions of a bounded value; None if a bound is infinite or unknown or the value is missing."""
    # a bound may be named after the row's n or d
    low, high = (as_number(row.get(limit) if limit in SIZE_FIELDS else limit) for limit in limits)
    value, null = as_number(row.get("value")), as_number(row.get("null_value"))
    if low is None or high is None or value is None or not low < high:
        return None

    def place(x: float) -> float:
        return round(TRACK * min(max((x - low) / (high - low), 0.0), 1.0), 2)

    against = "" if null is None else f"; isotropic Gaussian: {number(null)}"
    label = f"{number(value)} on the range from {number(low)} to {number(high)}{against}"
    start = place(min(max(0.0, low), high))
    return Track(value=place(value), null=None if null is None else place(null), start=start, label=label)
