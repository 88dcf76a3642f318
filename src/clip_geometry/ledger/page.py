"""docs/reproduction.md from the ledger and recorded rows: every published number, ours, the difference, the cause."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clip_geometry.ledger.comparing import Line, compare
from clip_geometry.ledger.entries import entries, findings, has_ledger
from clip_geometry.ledger.published import papers
from clip_geometry.ledger.tables import tables
from clip_geometry.report.words import render
from clip_geometry.results import Row


def reproduction_page(recorded: Mapping[str, Sequence[Row]]) -> str:
    """The page.

    Args:
        recorded: Name of a run → its recorded rows.
    """
    about: list[Mapping[str, Any]] = []
    for paper in papers().values():
        # a line for every published number, with all that was recorded for it
        lines = []
        for entry in entries(paper.name) if has_ledger(paper.name) else ():
            found = [line for run in entry.runs for line in compare(recorded.get(run, ()), run, [entry])]
            lines.append(Line(entry, tuple(ours for line in found for ours in line.ours)))
        own = sum(line.comparable for line in lines)
        others = sum(bool(line.ours) for line in lines) - own
        reasons = sum(bool(line.entry.rule.reason) for line in lines)
        about.append(
            {
                "title": paper.title,
                "reference": paper.reference,
                "has_ledger": has_ledger(paper.name),
                "counts": (len(lines), own, others, reasons, len(lines) - own - others - reasons),
                "findings": findings(paper.name),
                "tables": tables(lines),
            }
        )
    return render(Path(__file__).with_name("reproduction.md.j2"), papers=about, wrapped=_wrapped, cited=_cited)


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith(("- ", "  ")) else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _cited(evidence: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" if each.startswith("tests/") else each for each in evidence)
