"""The report: one HTML file that needs nothing else, no network, no script."""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from clip_geometry.files import write_atomically
from clip_geometry.report import explained
from clip_geometry.report.beside import Table as BesideTable
from clip_geometry.report.findings import findings
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.origin import Row, Run, told
from clip_geometry.report.table import TRACK, Explanation, anchor, build_table, explain, group_order

MAX_RUNS_TOLD = 4  # a sweep over more runs is read in the table

_REFERENCE = re.compile(r"https?://[^\s<>\"]+|doi:[^\s,;]+|arXiv:\d{4}\.\d{4,5}", re.IGNORECASE)


@dataclass(frozen=True)
class Section:
    """What the page shows of one part of a run.

    title, intro: shown where there are several sections. facts: what was measured, in the order shown (model, data, n,
    d, pipeline, seed, …); empty ones are left out. rows: of the results.jsonl beside the page; several runs (a sweep)
    are labelled A, B, … sentences: what they say, else it is read off the measures of each run. beside: tables of
    published numbers and ours. fresh_models: those with untrained weights, named in a banner.
    """

    facts: Mapping[str, Any]
    rows: Sequence[Row]
    figures: Sequence[FigureEntry]
    title: str = ""
    intro: str = ""
    sentences: Sequence[str] = ()
    fresh_models: Sequence[str] = ()
    beside: Sequence[BesideTable] = ()


def render_report(
    *,
    title: str,
    intro: str,
    sections: Sequence[Section],
    explanations: Mapping[str, Explanation],
    command: str = "",
    config: str = "",
    versions: Mapping[str, str] | None = None,
) -> str:
    """The page as text.

    explanations: measure name → measure, `geometry.measures` or the like. command, config (YAML text), versions: how to
    reproduce.
    """
    numbers = count(1)  # figures are counted through
    rows = [row for section in sections for row in section.rows]
    return (
        _environment()
        .get_template("template.html")
        .render(
            title=title,
            intro=intro,
            sections=[_shown(section, k, explanations, numbers) for k, section in enumerate(sections, start=1)],
            several=len(sections) > 1,
            track_width=TRACK,
            explained=_explained(rows, explanations),
            command=command,
            config=config,
            versions=dict(versions or {}),
        )
    )


def _shown(
    section: Section, number: int, explanations: Mapping[str, Explanation], numbers: Iterator[int]
) -> dict[str, Any]:
    """What the template says of a section. id: "" of the first, so that its anchors are short."""
    if section.sentences:
        telling, untold = [(Run("", ""), list(section.sentences))], 0
    else:
        found = [(part, sentences) for part in told(section.rows) if (sentences := findings(part.rows))]
        telling, untold = found[:MAX_RUNS_TOLD], len(found[MAX_RUNS_TOLD:])
    return {
        "id": f"-{number}" if number > 1 else "",
        "number": number,
        "title": section.title,
        "intro": section.intro,
        "facts": [(name, text) for name, value in section.facts.items() if (text := _fact(value))],
        "fresh_models": list(section.fresh_models),
        "findings": telling,
        "with_errors": any("±" in sentence for _, sentences in telling for sentence in sentences),
        "untold": untold,
        "table": build_table(section.rows, explanations),
        "explained": bool(_explained(section.rows, explanations)),
        "moved_before": any(row.get("maps") for row in section.rows),
        "beside": list(section.beside),
        "figures": _numbered(section.figures, numbers),
    }


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


def _numbered(figures: Iterable[FigureEntry], numbers: Iterator[int]) -> list[tuple[int, FigureEntry, str]]:
    """(number, entry, data address); 0 and "" for what could not be drawn."""
    return [(next(numbers), e, _data_uri(e.svg_path)) if e.svg_path else (0, e, "") for e in figures]


def _data_uri(svg: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.read_bytes()).decode()
