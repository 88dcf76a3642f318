"""The pages of the measures: a page for each, its variants on the same page, and one for each evaluator."""

import re
from functools import cache
from pathlib import Path

import changes
import svg

import clip_geometry as cg
from clip_geometry.geometry import GROUPS, Measure
from clip_geometry.report.explained import by_page, facts, place
from clip_geometry.report.known_models import known_models, values_of
from clip_geometry.report.numbers import bound
from clip_geometry.report.words import render

SIZES = ((300, 512), (5000, 512))
PANELS = 4  # of a figure


def pages() -> dict[str, str]:
    """Path of a page → its markdown."""
    return {
        _path(name): render(
            Path(__file__).with_name("measure.md.j2"),
            name=name,
            members=members,
            sizes=SIZES,
            nulls=nulls,
            facts=facts,
            place=place,
            bound=bound,
            figure=figure(name, members),
            known=known,
            invariances=cg.geometry.measure.INVARIANCES,
        )
        for name, members in by_page().items()
    }


def nav() -> list:
    """Sections of `nav`: the groups of measures, then the evaluators."""
    groups: dict[str, list[str]] = {}
    for name, members in by_page().items():
        title = "Evaluators" if members[0].evaluator else members[0].group.capitalize()
        groups.setdefault(title, []).append(_path(name))
    order = [*(group.capitalize() for group in GROUPS), "Evaluators"]
    return [{title: groups[title]} for title in order if title in groups]


def _path(name: str) -> str:
    return f"measures/{name}.md"


def linked(markdown: str) -> str:
    """The index of measures with a link from each name to its page."""
    return re.sub(r"^\| `(\w+)` \|", r"| [`\1`](measures/\1.md) |", markdown, flags=re.MULTILINE)


def known(name: str) -> dict[str, str]:
    """Known model → its values of the measure."""
    found = {title: values_of(title, [name]).removeprefix(f"{name} ") for title in known_models()}
    return {title: text for title, text in found.items() if text}


@cache
def nulls(name: str) -> list[str]:
    """The null value at each of `SIZES`."""
    return [svg.short(cg.null_value(name, n, d)) for n, d in SIZES]


def figure(name: str, members: list[Measure]) -> dict[str, str]:
    """What moves the measure and what does not: the drawing, and the same of its first member in a sentence."""
    shown = {member.evaluator or member.name: member for member in reversed(members)}  # the first number of each
    drawn, moved, still = [], [], []
    for member in list(reversed(shown.values()))[:PANELS]:
        base, after = changes.effects(member)
        if base is None:
            continue
        known = [each for each in after.values() if each is not None]
        slack = 1e-6 * max(abs(base), max(known) - min(known), 1e-3)

        def same(each: float, base: float = base, slack: float = slack) -> bool:
            return abs(each - base) <= slack

        null = None
        if not member.takes.startswith("train"):
            null = cg.null_value(member, changes.N, changes.D)
        drawn.append(svg.moves(member.name, base, null, after, same=same))
        if not moved and not still:
            moved = [change for change, each in after.items() if each is not None and not same(each)]
            still = [change for change, each in after.items() if each is not None and same(each)]
    return {"drawing": svg.panels(drawn), "moved": ", ".join(moved), "still": ", ".join(still)}
