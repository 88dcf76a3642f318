"""The pages in docs/papers/: a paper's claims with verdicts, findings about its numbers, and all of its numbers."""

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from clip_geometry.display.numbers import MISSING, plus_minus, to_error
from clip_geometry.display.words import filled, render
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry_experiments.published.comparing import compare, flat, matches
from clip_geometry_experiments.published.ledger import LedgerEntry, entries, ledger, papers
from clip_geometry_experiments.published.tables import VERDICTS, Judged, judge, tables

HERE = Path(__file__).parent


def all_lines(paper: str, recorded: Mapping[str, Sequence[Row]]) -> list[LedgerEntry]:
    """Return a comparison for every published number, with the recorded values of all runs. Untrained models come last.

    Args:
        paper: Name of the paper.
        recorded: Name of a run → its recorded rows.
    """
    lines = []
    for entry in entries(paper):
        compared = [line for run in entry.runs for line in compare(recorded.get(run, ()), run, [entry])]
        values = [ours for line in compared for ours in line.ours]
        values.sort(key=lambda ours: "/fresh" in str(ours.row.get("model")))
        lines.append(replace(entry, ours=tuple(values)))
    return lines


def paper_pages(
    recorded: Mapping[str, Sequence[Row]], articles: Mapping[str, Sequence[Row]] | None = None
) -> dict[str, str]:
    """Render one page for each paper, and the index.

    Args:
        recorded: Name of a run → its recorded rows.
        articles: Name of a run → rows that were recorded for the articles. The text of a finding may refer to them.

    Returns:
        Name of a page in docs/papers/ → its text.
    """

    def ours(run: str, key: str = "value", **where: Any) -> str:
        return _recorded_text([*recorded.get(run, ()), *(articles or {}).get(run, ())], key, where)

    about: list[dict[str, Any]] = []
    for paper in papers().values():
        rules = ledger(paper.name)
        lines = all_lines(paper.name, recorded)
        by_path = {line.path: line for line in lines}
        own = sum(line.comparable for line in lines)
        others = sum(bool(line.ours) for line in lines) - own
        reasons = sum(bool(line.rule.reason) for line in lines)
        judged = [
            judge(claim.model_copy(update={"text": filled(claim.text, ours=ours)}), by_path) for claim in rules.claims
        ]
        verdict_counts = Counter(each.verdict for each in judged)
        about.append(
            {
                "paper": paper,
                "asks": rules.asks,
                "counts": (len(lines), own, others, reasons, len(lines) - own - others - reasons),
                "claims": judged,
                "verdicts": {verdict: verdict_counts[verdict] for verdict in VERDICTS if verdict_counts[verdict]},
                "findings": [each.model_copy(update={"text": filled(each.text, ours=ours)}) for each in rules.findings],
                "tables": tables(lines),
            }
        )
    shared = {"wrapped": _wrapped, "meaning": VERDICTS, "cited": _cited, "escaped": _escaped, "run_words": _run_words}
    pages = {each["paper"].name: render(HERE / "paper.md.j2", **each, **shared) for each in about}
    pages["index"] = render(HERE / "papers.md.j2", papers=about, **shared)
    return {f"{name}.md": page for name, page in pages.items()}


def _recorded_text(rows: Sequence[Row], key: str, where: Mapping[str, Any]) -> str:
    """Return the number of the one row that fulfills the selectors, with its error; an en dash if nothing was recorded.

    Args:
        rows: Recorded rows.
        key: "value", "null_value", or a list such as "seed_values", of which the mean and its error are returned. A
            pooled value without a recorded error has as many digits as the mean of its seeds.
        where: Selectors, with two underscores instead of a dot.
    """
    selectors = {name.replace("__", "."): value for name, value in where.items()}
    numbers = {(str(row.get(key)), row.get("standard_error")): row for row in rows if matches(flat(row), selectors)}
    if not rows:
        return MISSING
    if len(numbers) != 1:
        raise InputError(f"{len(numbers)} recorded rows match the selectors {selectors} of a finding; expected one")
    (row,) = numbers.values()
    values = row[key] if key.endswith("_values") else row.get("seed_values", ())
    error_of_mean = stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    if key.endswith("_values"):
        return plus_minus(fmean(values), error_of_mean)
    error = row.get("standard_error") if key == "value" else None
    return to_error(row[key], error_of_mean) if error is None else plus_minus(row[key], error)


def _wrapped(text: str) -> str:
    """Wrap the paragraphs of a text, one per line, at 120 columns; continuation lines of a list item are indented."""
    layout: dict[str, Any] = {"width": 120, "break_long_words": False, "break_on_hyphens": False}
    indent = "  " if text.startswith("- ") else ""
    paragraphs = _escaped(text).splitlines()
    return "\n\n".join(textwrap.fill(paragraph, subsequent_indent=indent, **layout) for paragraph in paragraphs)


def _escaped(text: str) -> str:
    """Escape the star of IsoScore*, because two of them in a paragraph would be emphasis."""
    return text.replace("IsoScore*", r"IsoScore\*")


def anchor(title: str) -> str:
    """Return the anchor of a heading, as GitHub and Python-Markdown generate it."""
    return re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-")


def _run_words(judged: Judged) -> str:
    """Return what computes the numbers of a claim, short enough for a table: the config and a link to its options."""
    if judged.run.startswith("tests/"):
        return f"`pytest {judged.run.partition('::')[0]}`"
    config, _, options = judged.run.removeprefix("clip-geometry run ").removeprefix("configs/").partition(" ")
    name = f"`{Path(config).stem}`" if config else ""
    where = anchor(judged.table) if judged.verdict == "not run here" else "setups"
    return ", ".join(filter(None, (name + f" ([options](#{where}))" * bool(options), judged.needs)))


def _cited(evidence: Sequence[str]) -> str:
    """Format the evidence, with tests and bare commands as code."""
    code = re.compile(r"tests/|clip-geometry run (?!.*, [a-z]+ )")
    return ", ".join(f"`{source}`" if code.match(source) else source for source in evidence)
