"""How tables and numbers look on the terminal."""

import sys

from rich.console import Console
from rich.table import Table

from clip_geometry.report import numbers as report_numbers
from clip_geometry.results import Row


def console() -> Console:
    """Standard output; wide where it is no terminal, so that a piped table keeps its lines."""
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200)


def plain_table(*columns: str) -> Table:
    """A table without lines; ">name" is a column of numbers. All but the last column stay on one line."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=right or column == columns[0],
            overflow="fold",
        )
    return table


def bound(value: float | str) -> str:
    """A bound of a range: -1, 0.5, d, ∞."""
    return report_numbers.bound(value).replace("−", "-")


def value_and_error(row: Row) -> str:
    """0.8514 ± 0.0061; the value alone where there is no standard error."""
    if row.get("standard_error") is None:
        return number(row["value"])
    return report_numbers.plus_minus(row["value"], row["standard_error"]).replace("−", "-")


def number(value: float) -> str:
    """Four significant digits, in characters that can be copied: -0.0017, 3.9e-05."""
    return f"{value:.1e}" if value and abs(value) < 1e-4 else report_numbers.number(value).replace("−", "-")
