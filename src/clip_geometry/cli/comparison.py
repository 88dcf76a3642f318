"""`clip-geometry compare`: runs side by side, and which of their numbers may not be compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clip_geometry.cli.tables import console, print_table, say, value_and_error
from clip_geometry.registry import InputError
from clip_geometry.report.origin import option_words
from clip_geometry.results import ORIGIN, Record, read_rows


@dataclass(frozen=True)
class Column:
    """The records of one run that share their origin (a sweep has several), by measure and place."""

    name: str
    origin: dict[str, Any]
    records: dict[tuple[str, str], Record]


@dataclass(frozen=True)
class Line:
    """One measure of one set: its record in every column (None where it has no value), and what forbids comparing."""

    measure: str
    place: str
    records: tuple[Record | None, ...]
    remarks: tuple[str, ...]


def columns_of(run: Path) -> list[Column]:
    """The columns of a run folder or a file of measure --json."""
    columns: dict[str, Column] = {}
    rows = read_rows(run)
    sets = {record.at["modality"] for record in rows if "modality" in record.at}
    alone = sets.pop() if len(sets) == 1 else ""  # one set, named after its file, is compared with another such
    for record in rows:
        origin = {key: record.get(key) for key in ORIGIN}
        at = dict(record.at)
        modality = at.pop("modality", "")
        modality = "rows" if modality == alone and alone not in ("", "image", "text") else modality
        place = " ".join([str(modality), *(f"{key}={value}" for key, value in at.items())]).strip()
        columns.setdefault(repr(origin), Column(str(run), origin, {})).records[record.measure, place] = record
    return list(columns.values())


def compare(columns: Sequence[Column]) -> list[Line]:
    """A line for every measure and set that a column has a value of, in the order of the columns."""
    keys = dict.fromkeys(key for column in columns for key, each in column.records.items() if each.value is not None)
    lines = []
    for measure, place in keys:
        found = [column.records.get((measure, place)) for column in columns]
        present = [record for record in found if record is not None and record.value is not None]
        conditions = [  # what has to agree for two numbers to be comparable
            {
                "n": str(record.n),
                "d": str(record.d),
                "maps": str(record.maps or "none"),
                "pipeline": _text(record.pipeline),
                "precision": " from ".join(filter(None, (record.dtype, (record.model_options or {}).get("precision")))),
            }
            for record in present
        ]
        remarks = [
            f"different {name}: {', '.join(values)}"
            for name in conditions[0]
            if len(values := list(dict.fromkeys(condition[name] for condition in conditions))) > 1
        ]
        base = measure.partition("[")[0]
        without = [column.records for column, record in zip(columns, found, strict=True) if record is None]
        if any(name.partition("[")[0] == base and where == place for records in without for name, where in records):
            remarks.append("different convention: another variant of this measure stands in another run")
        valued = (record if record is not None and record.value is not None else None for record in found)
        lines.append(Line(measure, place, tuple(valued), tuple(remarks)))
    return lines


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return option_words(value)
    return " → ".join(value) or "raw" if isinstance(value, list) else str(value)


def print_comparison(runs: Sequence[Path]) -> None:
    """Prints the table of all runs; a line with a remark holds numbers that may not be compared."""
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
        [
            line.measure,
            line.place,
            *("–" if record is None else value_and_error(record) for record in line.records),
            remark,
        ]
        for line, remark in zip(lines, own, strict=True)
    ]
    heads = ["measure", "set", *(f">{name}" for name in names), "may not be compared"]
    if not any(own):
        heads, cells = heads[:-1], [line[:-1] for line in cells]
    print_table(out, heads, cells)


def shared_remarks(lines: Sequence[Line]) -> list[str]:
    """The remarks of every line that has two numbers or more."""
    remarks = [line.remarks for line in lines if sum(record is not None for record in line.records) > 1]
    return [remark for remark in remarks[0] if all(remark in each for each in remarks)] if remarks else []
