"""The report: one self-contained HTML file that needs no network access and can be read without its script."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from clip_geometry.display.explained import Explanation, explain, facts, group_order, title_of
from clip_geometry.display.origin import Row, Run, heading, places, runs
from clip_geometry.display.words import html_templates, security_policy
from clip_geometry.files import write_atomically
from clip_geometry.measuring.table import couples, matrices, numbers_table, verdict
from clip_geometry_experiments.report.figures import FigureEntry

MAX_SENTENCES = 3  # in a section's summary; the others are collapsed below it
MAX_RUNS_IN_BRIEF = 4  # beyond this, the runs of a sweep are only in the table
SCRIPT = Path(__file__).with_name("script.js").read_text(encoding="utf-8")
STYLE = Path(__file__).with_name("template.css").read_text(encoding="utf-8")

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[“(]?[A-ZА-Я]|[a-z]+[_\[])")
_REFERENCE = re.compile(r"https?://[^\s<>\"]+|doi:[^\s,;]+|arXiv:\d{4}\.\d{4,5}", re.IGNORECASE)
_RESOLVERS = {"doi": "https://doi.org/", "arxiv": "https://arxiv.org/abs/"}


def anchor(measure: str) -> str:
    """Return the id for links to a measure within the page, such as `measure-isotropy_i1-canonical`."""
    return "measure-" + re.sub(r"[^A-Za-z0-9_]+", "-", measure).strip("-")


@dataclass(frozen=True)
class Section:
    """One part of the page.

    Args:
        facts: What was measured, in the order shown (model, data, n, d, pipeline, seed, …); empty facts are left out.
        rows: Rows of the results.jsonl beside the page. Several runs (a sweep) are labeled A, B, ….
        figures: The figures of the section.
        title: Title of the section. Like the intro, it is only shown if there are several sections.
        intro: A paragraph below the title.
        sentences: What the rows say. Default: sentences derived from the measures of each run.
        fresh_models: Models with untrained weights, which a banner names.
        beside: Tables (`published.tables.PaperTable`) of published numbers and ours.
    """

    facts: Mapping[str, Any]
    rows: Sequence[Row]
    figures: Sequence[FigureEntry]
    title: str = ""
    intro: str = ""
    sentences: Sequence[str] = ()
    fresh_models: Sequence[str] = ()
    beside: Sequence[Any] = ()


def render_report(
    *, sections: Sequence[Section], explanations: Mapping[str, Explanation], folder: Path | None = None, **page: Any
) -> str:
    """Return the HTML of the page.

    Args:
        sections: The parts of the page.
        explanations: Measure → its explanation, such as `catalog.descriptions`.
        folder: Folder of the page. Files in it are linked; other files are only named.
        **page: `title` and `intro`; how to reproduce the run: `command`, `config` (YAML text) and `versions` (package →
            version); `smoke`, whether the page is of the small version of a config, which a banner states.
    """

    def beside(file: Path) -> Markup:
        if folder is None or not file.is_relative_to(folder):
            return escape(file.name)
        return Markup('<a href="{}">{}</a>').format(quote(file.relative_to(folder).as_posix()), file.name)

    environment = html_templates(Path(__file__).parent)
    environment.filters.update(
        facts=facts,
        anchor=anchor,
        linked=_linked,
        beside=beside,
        data_uri=lambda svg: f"data:image/svg+xml;base64,{base64.b64encode(svg.read_bytes()).decode()}",
    )
    rows = [row for section in sections for row in section.rows]
    numbers = count(1)  # figures are numbered across sections
    contexts = []
    for place, section in enumerate(sections, start=1):
        brief, more, left_out = _summary(section)
        of_section = runs(section.rows)
        crossed = couples(section.rows) if len(of_section) == 1 else []  # in a sweep they stay lines of the table
        facts_in_words = [(name, _fact(value)) for name, value in section.facts.items()]
        table = numbers_table([row for row in section.rows if row not in crossed], explanations)
        contexts.append(
            {
                **vars(section),
                "number": place,
                "facts": [(name, text) for name, text in facts_in_words if text],
                "findings": brief,
                "more": more,
                "with_errors": any("±" in sentence for sentence in brief),
                "left_out": left_out,
                "table": table,
                "runs": of_section if len(of_section) > 1 else [],
                "crossed": matrices(crossed),
                "explained": bool(_explained(section.rows, explanations)),
                "transformed": any(row.get("maps") for row in section.rows),
                "figures": [(next(numbers) if entry.svg_path else 0, entry) for entry in section.figures],
            }
        )
    return environment.get_template("template.html").render(
        **page,
        sections=contexts,
        several=len(sections) > 1,
        about=lambda name: getattr(explain(name, explanations), "summary", ""),
        measure_title=title_of,
        explained=_explained(rows, explanations),
        script=Markup(SCRIPT),
        style=Markup(STYLE),
        policy=Markup(security_policy(scripts=[SCRIPT], styles=[STYLE])),
    )


def parts(rows: Iterable[Row]) -> list[Run]:
    """Return the runs, divided by what varies in their `at` (layer, language, …), so that no measure occurs twice."""
    divided = []
    for run in runs(rows):
        names = places(run.rows)
        grouped: dict[str, list[Row]] = {}
        for row in run.rows:
            grouped.setdefault(heading(row, names), []).append(row)
        divided += [
            Run(run.label, " · ".join(filter(None, (run.heading, place))), members)
            for place, members in grouped.items()
        ]
    return divided


def _summary(section: Section) -> tuple[list[str], list[str], int]:
    """Return the first sentences of a section, its other sentences, and the number of runs that are left out.

    The sentences are the section's own, or else the verdict on the core measures, with one paragraph per run if there
    are several.
    """
    if section.sentences:
        sentences = [sentence for text in section.sentences for sentence in _SENTENCE_END.split(text)]
        return sentences[:MAX_SENTENCES], sentences[MAX_SENTENCES:], 0
    verdicts = [(part, verdict(part.rows)) for part in parts(section.rows)]
    verdicts = [(part, text) for part, text in verdicts if text]
    if len(verdicts) == 1:
        return _SENTENCE_END.split(verdicts[0][1]), [], 0
    paragraphs = [f"{part.heading or part.label}: {text}" for part, text in verdicts[:MAX_RUNS_IN_BRIEF]]
    return paragraphs, [], len(verdicts[MAX_RUNS_IN_BRIEF:])


def write_report(path: str | Path, **content: Any) -> Path:
    """Write `render_report(**content)` to a file, atomically.

    Returns:
        The path of the file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render_report(**content, folder=path.parent).encode())
    return path


def _fact(value: Any) -> str:
    """Format a value of the setup for the page."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {part}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _explained(rows: Iterable[Row], explanations: Mapping[str, Explanation]) -> list[tuple[str, list[Explanation]]]:
    """Return the explanations of the measures that occur, each once, by group."""
    groups: dict[str, dict[str, Explanation]] = {}
    for row in rows:
        explanation = explain(row["measure"], explanations)
        if explanation is not None:
            groups.setdefault(explanation.group, {})[explanation.name] = explanation
    return [(group, list(groups[group].values())) for group in sorted(groups, key=group_order)]


def _linked(reference: str) -> Markup:
    """Return a reference with links of its addresses, DOIs and arXiv numbers."""

    def link(match: re.Match[str]) -> Markup:
        scheme, _, rest = match[0].partition(":")
        address = _RESOLVERS[scheme.lower()] + rest if scheme.lower() in _RESOLVERS else match[0]
        return Markup('<a href="{}" rel="noreferrer">{}</a>').format(Markup(address), Markup(match[0]))

    return Markup(_REFERENCE.sub(link, escape(reference)))
