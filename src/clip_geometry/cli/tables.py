"""Tables, sentences and numbers on a terminal or in a pipe: never cut, and without spaces at the end of a line."""

import re
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clip_geometry.display import numbers as report_numbers
from clip_geometry.display.numbers import in_ascii as number
from clip_geometry.registry import printable

UNKNOWN_WIDTH = 200  # wide, so that a piped table keeps its lines
LEAST_WIDTH = 12  # of a folded column; narrower ones cannot be read
FOLD = "\x1f"  # to rich a space of no width


def console() -> Console:
    """Standard output, as wide as COLUMNS or the terminal says."""
    width = get_terminal_size((UNKNOWN_WIDTH, 24)).columns
    return Console(highlight=False, markup=False, width=width)


def say(out: Console, text: str, *, style: str = "", indent: str = "") -> None:
    """Prints a sentence, folded between words; `indent` starts all lines but the first."""
    width = max(out.width, LEAST_WIDTH + len(indent))
    text = printable(text.replace("\n", " "))
    for line in wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]:
        out.print(line, style=style, soft_wrap=True)


def print_table(out: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str] = ()) -> None:
    """Prints a table without lines.

    Args:
        out: Where to.
        columns: Names of the columns. ">name" is a column of numbers, which is never folded.
        rows: Cells. Text is folded between words, and a name like isotropy_i2[canonical] before its bracket or dot.
        spare: Columns to leave out, one after the other, while the table is too wide without folding. Where folding
            does not help either, the table is wider than the terminal.
    """
    columns = [printable(head) for head in columns]
    safe = [[printable(cell) for cell in row] for row in rows]
    cells = {head: [row[k] for row in safe] for k, head in enumerate(columns)}
    widths = {head: max(map(cell_len, [head.removeprefix(">"), *column])) for head, column in cells.items()}
    for name in spare:
        if sum(widths.values()) + 2 * (len(widths) - 1) > out.width:
            del widths[name]
    least = [width if head.startswith(">") else min(width, LEAST_WIDTH) for head, width in widths.items()]
    gaps = 2 * (len(widths) - 1)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in widths:
        number = head.startswith(">")
        table.add_column(head.removeprefix(">"), justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in zip(*(cells[head] for head in widths), strict=True):
        table.add_row(
            *(Text(cell if " " in cell else re.sub(r"(?<=\D)[.](?=\D)|\[", rf"{FOLD}\g<0>", cell)) for cell in row)
        )
    width = out.width if sum(least) + gaps <= out.width else sum(widths.values()) + gaps
    for line in out.render_lines(table, out.options.update(width=width), pad=False):
        text = "".join(segment.text for segment in line).replace(FOLD, "").rstrip()
        out.print(text, style=line[0].style, soft_wrap=True)


def bound(value: float | str) -> str:
    """A bound of a range: -1, 0.5, d, ∞."""
    return report_numbers.bound(value).replace("−", "-")


def value_and_error(record: Mapping[str, Any]) -> str:
    """0.8514 ± 0.0061, or 0.830 [0.795, 0.860] of a share; the value alone where there is no standard error."""
    if record.get("standard_error") is None:
        return number(record["value"])
    return report_numbers.with_error(record).replace("−", "-")
