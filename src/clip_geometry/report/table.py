"""Result rows into the lines of the main table: groups of measures, each with its sets and, in a sweep, its runs."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from clip_geometry.geometry import GROUPS
from clip_geometry.report.numbers import as_number, bound, number, plus_minus, to_error
from clip_geometry.report.origin import Row, places, runs, words

SETS = ("image", "text", "both")
SIZE_FIELDS = ("n", "d")
TRACK = 120  # width of the small picture, in its own units
ROUNDING = 1e-9  # values that differ by less are the same

Member = tuple[Row, tuple[str, ...]]  # a row and its cells under the columns that vary


class Explanation(Protocol):
    """What is used of `clip_geometry.geometry.Measure`; any object with these attributes will do."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def reading(self) -> str: ...
    @property
    def trap(self) -> str: ...
    @property
    def formula(self) -> str: ...
    @property
    def range(self) -> tuple[float | str, float | str]: ...
    @property
    def direction(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def reference(self) -> str: ...


@dataclass(frozen=True)
class Track:
    """Places in 0..TRACK: of the value, of the null value and of zero, inside the range."""

    value: float
    null: float | None
    start: float
    label: str


@dataclass(frozen=True)
class Line:
    """One number. `varying`: its cells under the columns that vary."""

    modality: str
    varying: tuple[str, ...]
    value: str
    null: str
    note: str
    track: Track | None


@dataclass(frozen=True)
class Block:
    """One measure with all its lines.

    anchor: the id of its explanation, empty where there is none. twin: `[cosine]`, a variant equal in all rows, or "".
    """

    name: str
    title: str
    anchor: str
    range: str
    unit: str
    direction: str
    trap: str
    twin: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Table:
    """runs: label and heading of each run, empty where there is one only. columns: names of the varying cells."""

    runs: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    groups: tuple[tuple[str, tuple[Block, ...]], ...]

    @property
    def bounded(self) -> bool:
        """Whether any line has a picture of its place within the range."""
        return any(line.track for _, blocks in self.groups for block in blocks for line in block.lines)


def explain(measure: str, explanations: Mapping[str, Explanation]) -> Explanation | None:
    """Of the measure, else of the one it is a variant of (`silhouette[cosine]`: `silhouette`), else None."""
    for name in (measure, measure.partition("[")[0]):
        if name in explanations:
            return explanations[name]
    return None


def anchor(measure: str) -> str:
    """`measure-isotropy_i1-canonical`: an id for a link within the page."""
    return "measure-" + re.sub(r"[^A-Za-z0-9_]+", "-", measure).strip("-")


def build_table(rows: Sequence[Row], explanations: Mapping[str, Explanation]) -> Table:
    """Groups in their order, measures as they first appear in the rows, within a measure image, text, both.

    Several runs get a column of their labels; what of `at`, n and d varies gets a column each.
    """
    found = runs(rows)
    several = len(found) > 1
    names = (*places(rows), *(name for name in SIZE_FIELDS if _varies(name, rows)))
    by_measure: dict[str, list[Member]] = {}
    for run in found:
        for row in run.rows:
            cells = (*((run.label,) if several else ()), *(words(row, name) for name in names))
            by_measure.setdefault(row["measure"], []).append((row, cells))
    groups: dict[str, list[Block]] = {}
    for name, members in by_measure.items():
        explanation = explain(name, explanations)
        group = explanation.group if explanation else "other"
        groups.setdefault(group, []).append(_block(name, members, explanation, _twin(name, by_measure)))
    return Table(
        runs=tuple((run.label, run.heading) for run in found) if several else (),
        columns=(*(("run",) if several else ()), *names),
        groups=tuple((group, tuple(groups[group])) for group in sorted(groups, key=group_order)),
    )


def _varies(name: str, rows: Iterable[Row]) -> bool:
    """A row that lacks a field does not make it vary."""
    return len({text for row in rows if (text := words(row, name))}) > 1


def group_order(group: str) -> int:
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


def _twin(name: str, by_measure: Mapping[str, Sequence[Member]]) -> str:
    """An earlier variant of the measure that is equal in all rows, as silhouettes are on unit rows; or ""."""
    base = name.partition("[")[0]
    for other in itertools.takewhile(lambda other: other != name, by_measure):
        if other.partition("[")[0] == base and _equal(by_measure[other], by_measure[name]):
            return other.removeprefix(base) or base
    return ""


def _equal(these: Sequence[Member], those: Sequence[Member]) -> bool:
    here, there = ({(_modality(row), cells): row.get("value") for row, cells in members} for members in (these, those))
    values = [(as_number(value), as_number(there.get(place))) for place, value in here.items()]
    return here.keys() == there.keys() and all(
        x is not None and y is not None and abs(x - y) <= ROUNDING for x, y in values
    )


def _block(name: str, members: Sequence[Member], explanation: Explanation | None, twin: str) -> Block:
    # sorting is stable: within a set, runs keep their order
    ordered = sorted(members, key=lambda member: _set_order(_modality(member[0])))
    near = [row.get(key) for row, _ in members for key in ("value", "null_value")]
    lines = tuple(_line(row, cells, explanation, near) for row, cells in ordered)
    if explanation is None:
        return Block(name, name, "", "", "", "", "", twin, lines)
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
        trap=explanation.trap,
        twin=twin,
        lines=lines,
    )


def _modality(row: Row) -> str:
    return str((row.get("at") or {}).get("modality") or "")


def _set_order(modality: str) -> int:
    return SETS.index(modality) if modality in SETS else len(SETS)


def _line(row: Row, varying: tuple[str, ...], explanation: Explanation | None, near: Sequence[Any]) -> Line:
    """near: the numbers of the measure, all read beside each other."""
    value, error = as_number(row.get("value")), row.get("standard_error")
    return Line(
        modality=_modality(row),
        varying=varying,
        value="" if value is None else plus_minus(value, error, *near),
        null=to_error(row.get("null_value"), error, *near),
        note=row.get("note") or ("not a finite number" if value is None else ""),
        track=track(row, explanation.range) if explanation else None,
    )


def track(row: Row, limits: tuple[float | str, float | str]) -> Track | None:
    """Places of a bounded value; None where a bound is infinite or unknown or the value is missing."""
    low, high = (_limit(limit, row) for limit in limits)
    value, null = as_number(row.get("value")), as_number(row.get("null_value"))
    if low is None or high is None or value is None or not low < high:
        return None

    def place(x: float) -> float:
        return round(TRACK * min(max((x - low) / (high - low), 0.0), 1.0), 2)

    against = "" if null is None else f"; isotropic Gaussian: {number(null)}"
    label = f"{number(value)} on the range from {number(low)} to {number(high)}{against}"
    start = place(min(max(0.0, low), high))
    return Track(value=place(value), null=None if null is None else place(null), start=start, label=label)


def _limit(limit: float | str, row: Row) -> float | None:
    """A bound as a number: itself, or the row's n or d where it is named after one."""
    value = row.get(limit) if limit in SIZE_FIELDS else limit
    value = as_number(value)
    return value if value is not None and math.isfinite(value) else None
