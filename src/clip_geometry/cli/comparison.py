"""`clip-geometry compare`: runs side by side, and what may not be compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clip_geometry.cli.tables import console, print_table, say, value_and_error
from clip_geometry.registry import InputError
from clip_geometry.report.origin import option_words
from clip_geometry.results import ORIGIN, Row, read_rows


@dataclass(frozen=True)
class Column:
    """The rows of one run that share their origin (a sweep has several)."""

    name: str
    origin: dict[str, Any]
    rows: dict[tuple[str, str], Row]  # (measure, place) → row


@dataclass(frozen=True)
class Line:
    """One measure of one set in every column, None where it has no value, and why they may not be compared, if so."""

    measure: str
    place: str
    rows: tuple[Row | None, ...]
    remarks: tuple[str, ...]


def columns_of(run: Path) -> list[Column]:
    """The columns of a run folder or a file of measure --json."""
    grouped: dict[str, tuple[dict[str, Any], dict[tuple[str, str], Row]]] = {}
    for row in read_rows(run):
        origin = {key: row.get(key) for key in ORIGIN}
        _, rows = grouped.setdefault(repr(origin), (origin, {}))
        rows[row["measure"], _place(row)] = row
    return [Column(str(run), origin, rows) for origin, rows in grouped.values()]


def _place(row: Row) -> str:
    at = dict(row["at"])
    modality = at.pop("modality", "")
    return " ".join([modality, *(f"{key}={value}" for key, value in at.items())]).strip()


def compare(columns: Sequence[Column]) -> list[Line]:
    """A line for every measure and set that a column has a value of, in the order of the columns."""
    keys = dict.fromkeys(key for column in columns for key, row in column.rows.items() if row["value"] is not None)
    return [_line(columns, *key) for key in keys]


def _line(columns: Sequence[Column], measure: str, place: str) -> Line:
    found = (column.rows.get((measure, place)) for column in columns)
    rows = tuple(row if row is not None and row["value"] is not None else None for row in found)
    present = [row for row in rows if row is not None]
    conditions = [_conditions(row) for row in present]
    remarks = [
        f"different {name}: {', '.join(values)}"
        for name in (conditions[0] if conditions else ())
        if len(values := list(dict.fromkeys(condition[name] for condition in conditions))) > 1
    ]
    if len(present) < len(columns) and _other_conventions(columns, measure, place):
        remarks.append("different convention: another variant of this measure stands in another run")
    return Line(measure, place, rows, tuple(remarks))


def _conditions(row: Row) -> dict[str, str]:
    """What has to agree for two numbers to be compared."""
    encoded = (row.get("model_options") or {}).get("precision")
    return {
        "n": str(row.get("n")),
        "d": str(row.get("d")),
        "maps": str(row.get("maps") or "none"),
        "pipeline": _text(row.get("pipeline")),
        "precision": " from ".join(filter(None, (row.get("dtype"), encoded))),
    }


def _other_conventions(columns: Sequence[Column], measure: str, place: str) -> bool:
    """Whether a column lacks this variant of the measure but has another."""
    base = measure.partition("[")[0]
    return any(
        (measure, place) not in column.rows
        and any(other.partition("[")[0] == base and where == place for other, where in column.rows)
        for column in columns
    )


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return option_words(value)
    return " → ".join(value) or "raw" if isinstance(value, list) else str(value)


def print_comparison(runs: Sequence[Path]) -> None:
    """The table of all runs; a line with a remark holds numbers that may not be compared."""
    columns = [column for run in runs for column in columns_of(run)]
    if len(columns) < 2:
        raise InputError(f"{len(columns)} run given; compare needs at least two")
    out = console()
    names = [chr(ord("A") + k) if k < 26 else f"#{k + 1}" for k in range(len(columns))]
    for name, column in zip(names, columns, strict=True):
        origin = "; ".join(f"{key} {_text(value)}" for key, value in column.origin.items() if value not in (None, {}))
        say(out, f"{name} = {column.name}: {origin}", indent="    ")
    lines = compare(columns)
    shared = shared_remarks(lines)
    for remark in shared:
        say(out, f"no line may be compared: {remark}")
    own = ["; ".join(remark for remark in line.remarks if remark not in shared) for line in lines]
    cells = [
        [line.measure, line.place, *("–" if row is None else value_and_error(row) for row in line.rows), remark]
        for line, remark in zip(lines, own, strict=True)
    ]
    heads = ["measure", "set", *(f">{name}" for name in names), "may not be compared"]
    if not any(own):
        heads, cells = heads[:-1], [line[:-1] for line in cells]
    print_table(out, heads, cells)


def shared_remarks(lines: Sequence[Line]) -> list[str]:
    """What stands against every line that has two numbers or more: said once."""
    remarks = [line.remarks for line in lines if sum(row is not None for row in line.rows) > 1]
    return [remark for remark in remarks[0] if all(remark in each for each in remarks)] if remarks else []
