"""The report: one HTML file that needs nothing else, no network, no script."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from clip_geometry.files import write_atomically
from clip_geometry.report import explained
from clip_geometry.report.beside import Table as BesideTable
from clip_geometry.report.findings import findings
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.origin import Row, told
from clip_geometry.report.table import TRACK, Explanation, anchor, build_table, explain, group_order

MAX_RUNS_TOLD = 4  # a sweep over more runs is read in the table

_REFERENCE = re.compile(r"https?://[^\s<>\"]+|doi:[^\s,;]+|arXiv:\d{4}\.\d{4,5}", re.IGNORECASE)


def render_report(
    *,
    title: str,
    intro: str,
    facts: Mapping[str, Any],
    rows: Sequence[Row],
    figures: Sequence[FigureEntry],
    explanations: Mapping[str, Explanation],
    fresh_models: Sequence[str] = (),
    beside: Sequence[BesideTable] = (),
    command: str = "",
    config: str = "",
    versions: Mapping[str, str] | None = None,
) -> str:
    """The page as text.

    facts: what was measured, in the order shown (model, data, n, d, pipeline, seed, …); empty ones are left out.
    rows: those of the results.jsonl beside the page; several runs (a sweep) are labelled A, B, … explanations: measure
    name → measure, `geometry.measures` or the like. fresh_models: those with untrained weights, named in a banner.
    beside: tables of published numbers and ours. command, config (YAML text), versions: how to reproduce.
    """
    telling = [(part, sentences) for part in told(rows) if (sentences := findings(part.rows))]
    table = build_table(rows, explanations)
    return (
        _environment()
        .get_template("template.html")
        .render(
            title=title,
            intro=intro,
            facts=[(name, text) for name, value in facts.items() if (text := _fact(value))],
            fresh_models=list(fresh_models),
            findings=telling[:MAX_RUNS_TOLD],
            with_errors=any("±" in sentence for _, sentences in telling for sentence in sentences),
            untold=len(telling[MAX_RUNS_TOLD:]),
            table=table,
            moved_before=any(row.get("maps") for row in rows),
            track_width=TRACK,
            beside=list(beside),
            figures=_numbered(figures),
            explained=_explained(rows, explanations),
            command=command,
            config=config,
            versions=dict(versions or {}),
        )
    )


def write_report(path: str | Path, **content: Any) -> Path:
    """`render_report(**content)` into a file, at once or not at all → its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render_report(**content).encode())
    return path


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(facts=explained.facts, anchor=anchor, references=_references)
    return environment


def _fact(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {part}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _explained(rows: Iterable[Row], explanations: Mapping[str, Explanation]) -> list[tuple[str, list[Explanation]]]:
    """The measures that occur, each once, by group."""
    groups: dict[str, dict[str, Explanation]] = {}
    for row in rows:
        explanation = explain(row["measure"], explanations)
        if explanation is not None:
            groups.setdefault(explanation.group, {})[explanation.name] = explanation
    return [(group, list(groups[group].values())) for group in sorted(groups, key=group_order)]


def _references(text: str) -> list[tuple[str, str]]:
    """Pieces of a reference with their addresses, "" for plain text."""
    pieces, end = [], 0
    for match in _REFERENCE.finditer(text):
        pieces += [(text[end : match.start()], ""), (match[0], _address(match[0]))]
        end = match.end()
    return [piece for piece in (*pieces, (text[end:], "")) if piece[0]]


def _address(reference: str) -> str:
    scheme, _, rest = reference.partition(":")
    known = {"doi": "https://doi.org/", "arxiv": "https://arxiv.org/abs/"}
    return known[scheme.lower()] + rest if scheme.lower() in known else reference


def _numbered(figures: Iterable[FigureEntry]) -> list[tuple[int, FigureEntry, str]]:
    """(number, entry, data address); 0 and "" for what could not be drawn."""
    numbers = count(1)
    return [(next(numbers), e, _data_uri(e.svg_path)) if e.svg_path else (0, e, "") for e in figures]


def _data_uri(svg: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.read_bytes()).decode()
