"""A table of an experiment's own in the report: text, a line per thing compared."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A table of text.

    Args:
        title: Its heading.
        columns: The headings of the columns; ">" in front means numbers, aligned to the right.
        rows: The cells of each line.
        marked: Whether each line is emphasized.
        legend: Sentences below the table.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: Sequence[bool]
    legend: Sequence[str] = ()
