"""One table with its verdict and notes, as text of any width, HTML, LaTeX, Markdown and JSON."""

import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from clip_geometry.catalog import descriptions
from clip_geometry.display.explained import explain
from clip_geometry.registry import printable

WIDTH = 100  # width of text that is not printed on a terminal
UNKNOWN_WIDTH = 200  # wide, so that a piped table keeps its lines
LEAST_WIDTH = 12  # least width of a folded column; narrower columns are unreadable
FOLD = "\x1f"  # treated by rich as a space of zero width
GROUP = "\ue000"  # marks the position of a group's name in the lines of rich
FOLDING_POINTS = re.compile(r"(?<=\D)[.](?=\D)|\[")  # where a name such as isotropy_i2[canonical] may be folded


class Cell(str):
    """The text of a cell, with details that some renderers show.

    Args:
        text: The text.
        full: The text in LaTeX.
        hint: Shown in HTML when the user hovers over the cell.
        of: The object that the text was made from, for page templates.
    """

    full: str
    hint: str
    of: Any

    def __new__(cls, text: str, *, full: str = "", hint: str = "", of: Any = None) -> "Cell":
        cell = super().__new__(cls, text)
        cell.full, cell.hint, cell.of = full or text, hint, of
        return cell


@dataclass(frozen=True)
class TableColumn:
    """A column of a `Table`.

    Args:
        name: Its heading.
        kind: "text", "name" or "number". A "number" is aligned right. A "number" and a "name" are never folded.
        unit: Shown after the heading.
        shared: Whether rows with the same first cell share the cell of this column; HTML shows it once.
        spare: Columns with a nonzero value are left out, the lowest value first, if a terminal is too narrow, and
            always in LaTeX.
    """

    name: str
    kind: Literal["text", "name", "number"] = "text"
    unit: str = ""
    shared: bool = False
    spare: int = 0

    @property
    def is_number(self) -> bool:
        return self.kind == "number"

    @property
    def heading(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name


@dataclass(frozen=True)
class Table:
    """Rows of text with their heading, verdict, legend and notes.

    Args:
        columns: The columns. A table without columns has sentences only.
        groups: Maps the name of a group to its rows, each with a cell per column. Names are shown if `named_groups` is
            set.
        title: The title.
        verdict: What the numbers say, in sentences.
        heading: What the table is about: where the numbers come from and how they were computed.
        legend: What the columns and signs mean.
        notes: Further remarks.
        more: Tables that follow the rows, before the legend.
        named_groups: Whether the names of the groups are shown.
        style: Style of the title on a terminal, such as "bold red".

    Example:
        >>> from clip_geometry.display.table import Table, TableColumn
        >>> columns = TableColumn("measure"), TableColumn("value", "number")
        >>> print(Table(columns, {"": [["isoscore", "0.919"], ["modality_gap", "1.5"]]}, legend=["of 100 rows"]))
        measure       value
        isoscore      0.919
        modality_gap    1.5
        <BLANKLINE>
        of 100 rows
    """

    columns: Sequence[TableColumn] = ()
    groups: Mapping[str, Sequence[Sequence[str]]] | None = None
    title: str = ""
    verdict: Sequence[str] = ()
    heading: Sequence[str] = ()
    legend: Sequence[str] = ()
    notes: Sequence[str] = ()
    more: "Sequence[Table]" = ()
    named_groups: bool = False
    style: str = "bold"

    @property
    def rows(self) -> list[Sequence[str]]:
        """The rows of all groups."""
        return [row for rows in (self.groups or {}).values() for row in rows]

    def __str__(self) -> str:
        return "\n".join(line for line, _ in self.lines(WIDTH))

    def print(self, most: int = 10**6) -> None:
        """Print the table to standard output, as wide as the terminal, but at most `most` characters wide."""
        out = console()
        for line, style in self.lines(min(out.width, most)):
            out.print(line, style=style, soft_wrap=True)

    def lines(self, width: int) -> Iterator[tuple[str, str]]:
        """Yield printable lines of text and their styles.

        Text is folded between words to this width, and a name such as isotropy_i2[canonical] before its bracket or dot.
        Numbers are never folded; if they need more space, the lines are longer.
        """
        yield from ((line, self.style) for line in _folded([self.title], width))
        parts = [
            [(line, "bold") for line in _folded(self.verdict, width)],
            [(line, "") for line in _folded(self.heading, width)],
            self._grid(width) if self.rows else [],
            *([*table.lines(width)] for table in self.more),
            [(line, "dim") for line in _folded([*self.legend, *self.notes], width)],
        ]
        for number, part in enumerate(filter(None, parts)):
            if number:
                yield "", ""
            yield from part

    def _grid(self, width: int) -> list[tuple[str, str]]:
        """Return the headings and rows in columns, as lines with their styles."""
        names = [name for name in self.groups or {} if self.named_groups and name]
        cells = [_plain([column.heading for column in self.columns])]
        for name, members in (self.groups or {}).items():
            if name in names:
                cells.append([GROUP] + [""] * (len(self.columns) - 1))
            cells += [_plain(["  " + row[0], *row[1:]] if names else row) for row in members]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        shown = list(range(len(self.columns)))
        for k in sorted(shown, key=lambda k: self.columns[k].spare):
            if self.columns[k].spare and sum(widths[k] + 2 for k in shown) - 2 > width:
                shown.remove(k)
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        least = -2
        for k in shown:
            folded = self.columns[k].kind == "text"
            justify = "right" if self.columns[k].is_number else "left"
            grid.add_column(justify=justify, no_wrap=not folded, overflow="fold")
            least += 2 + (min(widths[k], LEAST_WIDTH) if folded else widths[k])
        for row in cells:
            texts = [row[k] if " " in row[k] else FOLDING_POINTS.sub(rf"{FOLD}\g<0>", row[k]) for k in shown]
            grid.add_row(*map(Text, texts))
        fitting = width if least <= width else sum(widths[k] + 2 for k in shown) - 2
        lines = []
        for segments in Console(file=io.StringIO(), width=fitting).render_lines(grid, pad=False):
            text = "".join(segment.text for segment in segments).replace(FOLD, "").rstrip()
            if GROUP in text:
                lines.append((printable(names.pop(0)), "bold"))
            else:
                lines.append((text, "" if lines else "bold"))  # the first line has the headings
        return lines

    def blocks(self) -> dict[str, list[list[Sequence[str]]]]:
        """Return the rows by group, and within a group in blocks with the same first cell."""
        return {
            name: [list(block) for _, block in groupby(rows, key=lambda row: row[0])]
            for name, rows in (self.groups or {}).items()
        }

    def html(self) -> str:
        """Return the table as HTML in the colors of the surrounding page, as a notebook shows it."""
        from clip_geometry.display.words import html_templates

        return html_templates(Path(__file__).parent).get_template("table.html").render(table=self)

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown."""
        lines = [f"**{line}**" for line in (self.title, *self.verdict) if line] + list(self.heading)
        if self.rows:
            rule = ["--:" if column.is_number else "---" for column in self.columns]
            rows = [[column.heading for column in self.columns], rule, *self.rows]
            escaped = ([printable(cell).replace("|", r"\|") for cell in row] for row in rows)
            lines.append("\n".join(f"| {' | '.join(row)} |" for row in escaped))
        return "\n\n".join([*lines, *(table.markdown() for table in self.more), *self.legend, *self.notes])

    def as_dict(self) -> dict[str, Any]:
        """Return the table for a JSON file: title, verdict, heading, columns, groups, more, legend and notes."""
        return {
            "title": self.title,
            "verdict": list(self.verdict),
            "heading": list(self.heading),
            "columns": [{"name": column.name, "kind": column.kind, "unit": column.unit} for column in self.columns],
            "groups": [{"name": name, "rows": list(map(list, rows))} for name, rows in (self.groups or {}).items()],
            "more": [table.as_dict() for table in self.more],
            "legend": list(self.legend),
            "notes": list(self.notes),
        }


def console() -> Console:
    """Return a console on standard output, as wide as COLUMNS or the terminal says."""
    width = get_terminal_size((UNKNOWN_WIDTH, 24)).columns
    return Console(highlight=False, markup=False, width=width)


def say(text: str, *, indent: str = "") -> None:
    """Print a sentence to standard output, folded between words; `indent` starts all lines but the first."""
    out = console()
    for line in _folded([text], out.width, indent) or [""]:
        out.print(line, soft_wrap=True)


def _plain(row: Sequence[str]) -> list[str]:
    return [printable(cell).replace("−", "-") for cell in row]


def _folded(sentences: Sequence[str], width: int, indent: str = "") -> list[str]:
    """Wrap sentences to the width; continued lines are indented."""
    width = max(width, LEAST_WIDTH + len(indent))
    lines = []
    for sentence in sentences:
        text = printable(sentence.replace("\n", " "))
        lines += wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines


SOFTWARE = "clip-geometry"  # citation key of the package itself
BIBLIOGRAPHY = f"@misc{{{SOFTWARE},"  # start of the files of `bibtex`
_SIGNS = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}", "±": r"$\pm$", "×": r"$\times$", "−": r"$-$",
    "<": "$<$", ">": "$>$", "→": r"$\to$", "↓": r"$\downarrow$", "↑": r"$\uparrow$",
    "·": r"$\cdot$", "∞": r"$\infty$", "–": "--", "…": r"\ldots{}",
    "α": r"$\alpha$", "κ": r"$\kappa$", "λ": r"$\lambda$", "Δ": r"$\Delta$", "“": "``", "”": "''",
}  # fmt: skip
_POWER = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_NAME = r"[^\W\d_a-z][\w'’-]*"
_CITED = re.compile(rf"({_NAME}(?: & {_NAME})?(?: et al\.)?) (\d{{4}})(?:, ([^;]+))?")


def escaped(text: str) -> str:
    """Escape a text for LaTeX."""
    return "".join(_SIGNS.get(sign, sign) for sign in printable(text))


def in_math(text: str) -> str:
    """Format a number for LaTeX, such as $-0.02 \\pm 0.01$ or $3.4 \\times 10^{-7}$; escape other text."""
    if not re.match(r"[−-]?\d", text) or not any(sign in text for sign in "±×−-"):
        return escaped(text)
    text = re.sub("10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda power: f"10^{{{power[1].translate(_POWER)}}}", text)
    for sign, command in (("−", "-"), ("±", r"\pm"), ("×", r"\times")):
        text = text.replace(sign, command)
    return f"${text}$"


def latex(table: Table, *, label: str, measures: Iterable[str], caption: Iterable[str] = ()) -> str:
    """Return a `table` with booktabs rules, whose caption cites the package and the sources of the measures.

    Columns that may be left out on a narrow terminal are left out.

    Args:
        table: The table.
        label: The label for `\\ref`.
        measures: Names of the measures.
        caption: Sentences of the caption. Default: the heading and the legend of the table.
    """
    shown = [k for k, column in enumerate(table.columns) if not column.spare]
    numbers = [table.columns[k].is_number for k in shown]
    groups = []
    for rows in (table.groups or {}).values():
        lines = []
        for row in rows:
            cells = (getattr(row[k], "full", row[k]) for k in shown)
            formatted = (in_math(cell) if right else escaped(cell) for cell, right in zip(cells, numbers, strict=True))
            lines.append(" & ".join(formatted) + r" \\")
        if lines:
            groups.append("\n".join(lines))
    sentences = list(caption) or ["; ".join(table.heading), *table.legend]
    keys = list(references(measures))
    sources = rf", measures after~\cite{{{','.join(keys)}}}" if keys else ""
    caption_text = escaped(" ".join(f"{sentence}." for sentence in sentences))
    return "\n".join(
        [
            "% needs booktabs; the BibTeX file has the entries that it cites",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption_text} Computed with clip-geometry~\cite{{{SOFTWARE}}}{sources}.}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in numbers)}}}",
            r"\toprule",
            " & ".join(escaped(table.columns[k].heading) for k in shown) + r" \\",
            r"\midrule",
            *(["\n\\addlinespace\n".join(groups)] if groups else []),
            r"\bottomrule",
            r"\end{tabular}",
            "\\end{table}\n",
        ]
    )


def bibtex(names: Iterable[str]) -> str:
    """Return the BibTeX entries of the package and of the sources of these measures.

    The sources have authors, year and identifier, which is what the reference of a measure contains.
    """
    own = {
        "title": "{clip-geometry}: measure, explain and change the geometry of multimodal embeddings",
        "author": "{The clip-geometry developers}",
        "note": f"Version {version('clip-geometry')}",
    }
    entries = []
    for key, fields in ({SOFTWARE: own} | references(names)).items():
        lines = "".join(f"  {field} = {{{value}}},\n" for field, value in fields.items())
        entries.append(f"@misc{{{key},\n{lines}}}\n")
    return "\n".join(entries)


def references(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return a mapping of key → BibTeX fields for the sources of the measures, in order.

    A source has the same key in all tables.
    """
    entries = {}
    for measure in filter(None, map(explain, names)):
        for people, year, _ in _CITED.findall(measure.reference):
            plain = unicodedata.normalize("NFKD", people.removesuffix(" et al.")).encode("ascii", "ignore").decode()
            key = "-".join(re.findall(r"[a-z]+", plain.lower())) + year  # radovanovic2010, wang-isola2020
            entries[key] = _sources()[people, year]
    return entries


@cache
def _sources() -> dict[tuple[str, str], dict[str, str]]:
    """Return a mapping of authors and year → fields, with the identifier if any measure states it."""
    sources: dict[tuple[str, str], dict[str, str]] = {}
    for measure in descriptions.values():
        for people, year, where in _CITED.findall(measure.reference):
            authors = people.replace(" et al.", " and others").replace(" & ", " and ")
            fields = sources.setdefault((people, year), {"author": authors, "year": year})
            kind, _, identifier = where.partition(":")
            identifier = re.split(r"[\s,]", identifier)[0]
            if kind == "arXiv":
                fields |= {"eprint": identifier, "archiveprefix": "arXiv"}
            elif kind == "doi":
                fields["doi"] = identifier
            elif where:
                fields.setdefault("howpublished", escaped(where.strip()))
    return sources
