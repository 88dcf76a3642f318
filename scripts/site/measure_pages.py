"""The pages of the measures: their index, a page for each with its variants, and one for each evaluator."""

from functools import cache
from inspect import unwrap
from operator import attrgetter
from pathlib import Path

import changes
import svg

import clip_geometry as cg
from clip_geometry.catalog import describe
from clip_geometry.display.explained import facts, known_models, values_of
from clip_geometry.display.numbers import bound, with_error
from clip_geometry.display.words import render
from clip_geometry.geometry import GROUPS, INVARIANCES, Measure, by_group, measures

SIZES = ((300, 512), (5000, 512))
PANELS = 4  # of a figure


def by_page() -> dict[str, list[Measure]]:
    """Name → its measures, in the order in which they are read: a measure with its variants, an evaluator with all of
    its numbers."""
    pages: dict[str, list[Measure]] = {}
    for measure in [*by_group(all=True), *filter(attrgetter("evaluator"), measures.values())]:
        pages.setdefault((measure.evaluator or measure.name).partition("[")[0], []).append(measure)
    return pages


def index() -> str:
    """The page with a line for each of `by_page`."""
    groups: dict[str, dict[str, list[Measure]]] = {}
    for name, members in by_page().items():
        group = "evaluators" if members[0].evaluator else members[0].group
        groups.setdefault(group, {})[name] = members
    known = known_models()
    lines = dict.fromkeys((each["measure"], each["set"]) for model in known.values() for each in model["numbers"])
    template = Path(__file__).with_name("measures.md.j2")
    return render(template, groups=groups, bound=bound, known=known, lines=lines, with_error=with_error)


def pages() -> dict[str, str]:
    """Name of a page → its Markdown."""
    return {
        f"{name}.md": render(
            Path(__file__).with_name("measure.md.j2"),
            name=name,
            members=members,
            sizes=SIZES,
            nulls=nulls,
            facts=lambda measure: facts(describe(measure.name)),
            place=place,
            bound=bound,
            figure=figure(name, members),
            known=known,
            invariances=INVARIANCES,
        )
        for name, members in by_page().items()
    }


def nav() -> list:
    """Sections of `nav`: the groups of measures, then the evaluators."""
    groups: dict[str, list[str]] = {}
    for name, members in by_page().items():
        title = "Evaluators" if members[0].evaluator else members[0].group.capitalize()
        groups.setdefault(title, []).append(f"measures/{name}.md")
    order = [*(group.capitalize() for group in GROUPS), "Evaluators"]
    return [{title: groups[title]} for title in order if title in groups]


def place(measure: Measure) -> str:
    """The call that computes a measure: `clip_geometry.geometry.isoscore(x, unbiased=True)`. A function that is not
    public is named with its module."""
    function = unwrap(measure.function)
    arguments = ", ".join(measure.inputs.arguments)
    options = "".join(f", {key}={value!r}" for key, value in measure.options.items())
    number = f'["{measure.attribute}"]' if measure.name.startswith(f"{measure.evaluator}.") else f".{measure.attribute}"
    home = "evaluate" if measure.evaluator else "geometry"
    public = unwrap(getattr(getattr(cg, home), function.__name__, place)) is function
    where = f"clip_geometry.{home}" if public else function.__module__
    return f"{where}.{function.__name__}({arguments}{options}){number if measure.attribute else ''}"


def known(name: str) -> dict[str, str]:
    """Known model → its values of the measure."""
    texts = {title: values_of(title, [name]).removeprefix(f"{name} ") for title in known_models()}
    return {title: text for title, text in texts.items() if text}


@cache
def nulls(name: str) -> list[str]:
    """The null value at each of `SIZES`."""
    return [svg.short(cg.geometry.null_value(name, n, d)) for n, d in SIZES]


def figure(name: str, members: list[Measure]) -> dict[str, str]:
    """What moves the measure and what does not: the drawing, and the same of its first member in a sentence."""
    shown = {member.evaluator or member.name: member for member in reversed(members)}  # the first number of each
    drawn, moved, still = [], [], []
    for member in list(reversed(shown.values()))[:PANELS]:
        base, after = changes.effects(member)
        if base is None:
            continue
        known = [value for value in after.values() if value is not None]
        slack = 1e-6 * max(abs(base), max(known) - min(known), 1e-3)

        def same(value: float, base: float = base, slack: float = slack) -> bool:
            return abs(value - base) <= slack

        null = None
        if not member.takes.startswith("train"):
            null = cg.geometry.null_value(member, changes.N, changes.D)
        drawn.append(svg.moves(member.name, base, null, after, same=same))
        if not moved and not still:
            moved = [change for change, value in after.items() if value is not None and not same(value)]
            still = [change for change, value in after.items() if value is not None and same(value)]
    return {"drawing": svg.panels(drawn), "moved": ", ".join(moved), "still": ", ".join(still)}
