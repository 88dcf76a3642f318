"""How tables, sentences and numbers look on the terminal and in a pipe: whole, and without spaces at the end."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console

from clip_geometry.registry import printable
from clip_geometry.report import numbers as report_numbers

if TYPE_CHECKING:
    from clip_geometry.results import Row

UNKNOWN_WIDTH = 200  # wide, so that a piped table keeps its lines
LEAST_WIDTH = 12  # of a folded column; narrower ones cannot be read


def console() -> Console:
    """Standard output, as wide as COLUMNS or the terminal says."""
    width = get_terminal_size((UNKNOWN_WIDTH, 24)).columns
    return Console(highlight=False, markup=False, width=width)


def say(out: Console, text: str, *, style: str = "", indent: str = "") -> None:
    """A sentence, folded between words; `indent` stands before all lines but the first."""
    width = max(out.width, LEAST_WIDTH + len(indent))
    text = printable(text.replace("\n", " "))
    for line in wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]:
        out.print(line, style=style, soft_wrap=True)


def print_table(out: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str] = ()) -> None:
    """A table without lines. ">name" is a column of numbers, which are never folded; other columns are where needed.

    spare: columns that are left out, one after the other, as long as the table is too wide without folding. Where
    folding does not help either, the table is wider than the terminal: no number is ever cut.
    """
    safe = [[printable(cell) for cell in row] for row in rows]
    for number, line in _lines([columns, *safe], spare, out.width):
        out.print(line, style="bold" if number == 0 else "", soft_wrap=True)


def _lines(rows: Sequence[Sequence[str]], spare: Sequence[str], width: int) -> Iterator[tuple[int, str]]:
    """(number of the row, line of the table); the first row holds the names of the columns."""
    columns = list(zip(*rows, strict=True))
    for name in spare:
        if _total(_widths(columns)) > width:
            columns = [column for column in columns if column[0] != name]
    numeric = [column[0].startswith(">") for column in columns]
    columns = [(column[0].removeprefix(">"), *column[1:]) for column in columns]
    widths = _folded(_widths(columns), numeric, width)
    for number, cells in enumerate(zip(*columns, strict=True)):
        for line in zip_longest(*map(_fold, cells, widths), fillvalue=""):
            yield number, "  ".join(map(_padded, line, widths, numeric)).rstrip()


def _widths(columns: Sequence[Sequence[str]]) -> list[int]:
    return [max(cell_len(cell.removeprefix(">")) for cell in column) for column in columns]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _folded(natural: list[int], numeric: Sequence[bool], width: int) -> list[int]:
    """The widest columns of text narrowed until all fit; the widths as they are where that is not possible."""
    widths = natural.copy()
    while _total(widths) > width:
        text = [k for k, number in enumerate(numeric) if not number and widths[k] > LEAST_WIDTH]
        if not text:
            return natural
        widths[max(text, key=widths.__getitem__)] -= 1
    return widths


def _fold(cell: str, width: int) -> list[str]:
    """Between words, and a name like isotropy_i2[canonical] before its bracket."""
    if cell_len(cell) <= width:
        return [cell]
    return wrap(cell if " " in cell else cell.replace("[", " ["), width, break_on_hyphens=False)


def _padded(cell: str, width: int, number: bool) -> str:
    spaces = " " * (width - cell_len(cell))
    return spaces + cell if number else cell + spaces


def bound(value: float | str) -> str:
    """A bound of a range: -1, 0.5, d, ∞."""
    return report_numbers.bound(value).replace("−", "-")


def value_and_error(row: "Row") -> str:
    """0.8514 ± 0.0061; the value alone where there is no standard error."""
    if row.get("standard_error") is None:
        return number(row["value"])
    return report_numbers.plus_minus(row["value"], row["standard_error"]).replace("−", "-")


def number(value: float) -> str:
    """Four significant digits, in characters that can be copied: -0.0017, 3.9e-05."""
    return f"{value:.1e}" if value and abs(value) < 1e-4 else report_numbers.number(value).replace("−", "-")
