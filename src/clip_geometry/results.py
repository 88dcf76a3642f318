"""Results: one JSON row per number, append-only."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict  # pydantic takes the standard one from Python 3.12 on

from clip_geometry.files import naming, sync_folder
from clip_geometry.paths import existing_file
from clip_geometry.reading import checked, parse_json
from clip_geometry.registry import InputError, shown

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]
Number = Annotated[float, Field(allow_inf_nan=False)] | int | None
Options = dict[str, Any] | None


class Line(TypedDict):
    """A line of a results file, as far as somebody computes with it or prints it."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # pyright: ignore[reportGeneralTypeIssues]
    cell: str
    cell_row: Annotated[int, Field(ge=0)]
    cell_rows: Annotated[int, Field(ge=1)]
    measure: NotRequired[str]
    value: NotRequired[Number]
    standard_error: NotRequired[Number]
    null_value: NotRequired[Number]
    n: NotRequired[int | None]
    d: NotRequired[int | None]
    at: NotRequired[dict[str, str | int | float | bool | None]]
    pipeline: NotRequired[list[str] | None]
    model: NotRequired[str | None]
    model_options: NotRequired[Options]
    dataset: NotRequired[str | None]
    data_options: NotRequired[Options]
    split: NotRequired[str | None]
    seed: NotRequired[int | None]
    dtype: NotRequired[str | None]
    trajectory: NotRequired[list[Number]]
    steps: NotRequired[list[int]]


# What tells runs apart: rows that agree in all of these come from the same rows made in the same way
CELLS = "cells.json"  # in a run folder: the cells of its config, written when all are finished
ORIGIN = (
    "model", "model_options", "dataset", "data_options", "split", "maps", "pipeline", "fitted_on", "seed", "dtype",
)  # fmt: skip


class Results:
    """The rows of one results.jsonl.

    Rows are written a finished cell at a time; `cell` is the hash of what defines the cell, `cell_row` and
    `cell_rows` are the row's place in it. So a line torn by a kill, or a cell that was cut short, is recognised when
    reading and left out, and the cell is computed again.
    """

    def __init__(self, path: Path):
        self.path = Path(path)

    def append(self, cell: str, rows: Iterable[Row]) -> None:
        """Writes the rows of one finished cell, durably and in one piece."""
        text = lines_of(cell, list(rows))
        with naming(self.path), self.path.open("a+b") as file:
            is_new = not file.tell()
            if not is_new and not self._ends_with_newline():
                text = "\n" + text  # a torn line stays a line of its own
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
            if is_new:
                sync_folder(self.path.parent)

    def _ends_with_newline(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def read(self, *, strict: bool = False) -> list[Row]:
        """The rows of all finished cells, in the order in which they were finished.

        A line that is no such row counts as torn, so its cell is computed again; strict: it is an InputError, unless a
        kill can have torn it.
        """
        finished: dict[str, list[Row]] = {}
        begun: dict[str, list[Row]] = {}
        for row in _parsed_lines(self.path, strict):
            if row["cell_row"] == 0:
                begun[row["cell"]] = []
            part = begun.setdefault(row["cell"], [])
            if row["cell_row"] == len(part):
                part.append(row)
            if len(part) == row["cell_rows"]:
                finished[row["cell"]] = part
        return [row for rows in finished.values() for row in rows]

    def finished(self) -> set[str]:
        """The cells that need not be computed again."""
        return {row["cell"] for row in self.read()}

    def to_frame(self) -> "pandas.DataFrame":
        """The rows as a table, `at` spread into columns `at.layer`, `at.modality`, …"""
        return to_frame(self.read())


def lines_of(cell: str, rows: Sequence[Row]) -> str:
    """The rows of one finished cell as they stand in a results file."""
    places = [{"cell": cell, "cell_row": k, "cell_rows": len(rows)} for k in range(len(rows))]
    try:
        lines = [
            json.dumps({**row, **place}, ensure_ascii=False, allow_nan=False)
            for row, place in zip(rows, places, strict=True)
        ]
    except ValueError:  # NaN or infinity somewhere in them
        broken = [row.get("measure") for row in rows if not math.isfinite(row.get("value") or 0)]
        raise InputError(f"the rows of {shown(cell)} are not finite ({shown(broken)}); they were not written") from None
    return "".join(f"{line}\n" for line in lines)


def _parsed_lines(path: Path, strict: bool) -> Iterator[Row]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            source = f"line {number} of {shown(path)}"
            try:
                values = parse_json(line, source)
            except InputError:  # torn by a kill
                continue
            try:
                yield checked(values, source, Line)
            except InputError:
                if strict:
                    raise


def to_frame(rows: Iterable[Mapping[str, Any]]) -> "pandas.DataFrame":
    """Rows as a pandas table, `at` spread into columns."""
    import pandas as pd

    flat = [
        {**{k: v for k, v in row.items() if k != "at"}, **{f"at.{k}": v for k, v in row.get("at", {}).items()}}
        for row in rows
    ]
    return pd.DataFrame(flat)


def read_rows(path: Path) -> list[Row]:
    """Rows of a run folder, of its results.jsonl or of a file written by `measure --json`."""
    path = Path(path)
    file = path / "results.jsonl" if path.is_dir() else path
    if not file.exists():
        hint = "a run folder holds results.jsonl" if path.is_dir() else "give a run folder or a file of measure --json"
        raise InputError(f"{shown(file)} does not exist; {hint}")
    rows = Results(existing_file(file, "result rows")).read(strict=True)
    if not rows or not all({"measure", "value", "at"} <= row.keys() for row in rows):
        raise InputError(f"{shown(file)} holds no finished result rows of a run or of measure --json")
    return rows
