"""Results: one JSON row per number, append-only."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clip_geometry.registry import InputError

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]

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
        with self.path.open("a+b") as file:
            if file.tell() and not self._ends_with_newline():
                text = "\n" + text  # a torn line stays a line of its own
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

    def _ends_with_newline(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def read(self) -> list[Row]:
        """The rows of all finished cells, in the order in which they were finished."""
        finished: dict[str, list[Row]] = {}
        begun: dict[str, list[Row]] = {}
        for row in _parsed_lines(self.path):
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
    lines = [json.dumps({**row, **place}, ensure_ascii=False) for row, place in zip(rows, places, strict=True)]
    return "".join(f"{line}\n" for line in lines)


def _parsed_lines(path: Path) -> Iterator[Row]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:  # torn by a kill
                continue
            if isinstance(row, dict) and {"cell", "cell_row", "cell_rows"} <= row.keys():
                yield row


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
        raise InputError(f"{file} does not exist; {hint}")
    rows = Results(file).read()
    if not rows or not all({"measure", "value", "at"} <= row.keys() for row in rows):
        raise InputError(f"{file} holds no finished result rows of a run or of measure --json")
    return rows
