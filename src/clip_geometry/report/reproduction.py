"""docs/reproduction.md of the ledger and recorded rows: every published number, ours, the difference, the cause."""

import textwrap
from collections.abc import Mapping, Sequence

from clip_geometry.ledger import Line, Paper, compare, entries, findings, has_ledger, papers
from clip_geometry.ledger.rules import Finding
from clip_geometry.report.beside import Cells, Table, tables
from clip_geometry.results import Row

HEAD = """# Published beside ours

Made by `python scripts/build_docs.py` from the package's ledger (`src/clip_geometry/ledger/`: the numbers of the
papers, `published.yaml`, and which result rows stand beside them) and the rows in `docs/reproduction/`, which
`python scripts/record_run.py RUN_FOLDER` wrote. Every number is here; where nothing of ours stands beside it, the table
says why.

*Cause* names first what of ours is not the paper's (the model, the data, what a map was fitted on): such a row shows
that the way from data to number is complete, and its difference says nothing about the paper. The numbers after it are
those of the sentences below the table, the letters those of the setups. ± is one standard error unless the row says
otherwise, ✓ stands where ours rounds to what is printed. The report of a run whose config is named here has these
tables with its own rows.
"""
COLUMNS = "| | published | ours | difference | ours is | n × d | setup | cause |\n|---|--:|--:|--:|---|--:|---|---|"


def reproduction_page(recorded: Mapping[str, Sequence[Row]]) -> str:
    """The page. recorded: name of a run → its recorded rows."""
    return HEAD + "".join(_paper(paper, recorded) for paper in papers().values())


def _paper(paper: Paper, recorded: Mapping[str, Sequence[Row]]) -> str:
    head = f"\n## {paper.title}\n\n{paper.reference}\n\n"
    if not has_ledger(paper.name):
        return (
            f"{head}Its numbers are in `published.yaml`; what stands beside them comes with the issue of this paper.\n"
        )
    lines = _lines(paper.name, recorded)
    told = "".join(map(_finding, findings(paper.name)))
    found = "".join(map(_table, tables(lines)))
    return f"{head}{_wrapped(_summary(lines))}\n\n### What its numbers turn out to be\n{told}{found}"


def _lines(paper: str, recorded: Mapping[str, Sequence[Row]]) -> list[Line]:
    """A line for every published number, with all that was recorded for it."""
    found = []
    for entry in entries(paper):
        lines = [line for run in entry.runs for line in compare(recorded.get(run, ()), run, [entry])]
        found.append(Line(entry, tuple(ours for line in lines for ours in line.ours)))
    return found


def _summary(lines: Sequence[Line]) -> str:
    own = sum(line.comparable for line in lines)
    others = sum(bool(line.ours) for line in lines) - own
    reasons = sum(bool(line.entry.rule.reason) for line in lines)
    left = len(lines) - own - others - reasons
    return (
        f"{len(lines)} published numbers: {own} beside ours of the paper's own setup, {others} beside ours of another "
        f"model or other data, {reasons} that nothing here computes, {left} not run here."
    )


def _finding(finding: Finding) -> str:
    evidence = ", ".join(f"`{each}`" if each.startswith("tests/") else each for each in finding.evidence)
    return f"\n{_wrapped(f'- **{finding.title}.** {finding.text}')}\n{_wrapped(f'  *Evidence:* {evidence}.')}\n"


def _table(table: Table) -> str:
    lines = [f"\n### {table.title}\n", COLUMNS, *map(_row, table.rows)]
    notes = [f"**{letter}**: {setup}." for letter, setup in table.setups.items()]
    notes += [f"({place}) {cause}" for place, cause in enumerate(table.causes, start=1)]
    notes += [f"The paper's own setup was not run here; {missing}." for missing in table.missing]
    return "\n".join([*lines, *(f"\n{_wrapped(note)}" for note in notes)]) + "\n"


def _row(cells: Cells) -> str:
    label, published = (cells.label, cells.published) if cells.first else ("", "")
    parts = (label, published, cells.ours, cells.difference, cells.how, cells.size, cells.setup, cells.cause)
    return f"| {' | '.join(part.replace('|', chr(92) + '|') for part in parts)} |"


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith(("- ", "  ")) else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
