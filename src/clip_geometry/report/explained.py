"""The explanations of the registered measures: for the terminal, the report and docs/measures.md."""

from inspect import unwrap
from operator import attrgetter
from pathlib import Path

import clip_geometry
from clip_geometry.geometry import Measure, by_group, measures
from clip_geometry.report.known_models import known_models
from clip_geometry.report.numbers import bound, with_error
from clip_geometry.report.table import Explanation
from clip_geometry.report.words import render


def facts(measure: Explanation) -> str:
    """Range and direction; of a registered Measure also its limit, invariances, needs and cost."""
    low, high = measure.range
    unit = f" {measure.unit}" if measure.unit else ""
    parts = [f"range {bound(low)} … {bound(high)}{unit}", measure.direction]
    if isinstance(measure, Measure):
        limit = "its null value on a Gaussian depends on n and d"
        if measure.at_gaussian is not None:
            limit = f"{bound(measure.at_gaussian)} on an isotropic Gaussian as n grows"
        parts += [
            limit,
            f"invariant to {', '.join(measure.invariances) or 'none of the maps that are checked'}",
            f"needs {', '.join(measure.needs) or 'nothing but rows'}",
            f"n ≥ {measure.least_n}" + (f", d ≥ {measure.least_d}" if measure.least_d > 1 else ""),
            *(["time grows with n²"] if measure.quadratic else []),
            *([] if measure.smooth else ["no standard error"]),
            *([] if measure.by_default else ["computed only if named"]),
        ]
    return "; ".join(parts)


def place(measure: Measure) -> str:
    """The call that computes a measure: `clip_geometry.isoscore(x, unbiased=True)`. Functions that are not public are
    named with their module."""
    function = unwrap(measure.function)
    arguments = ", ".join(measure.inputs.arguments)
    options = "".join(f", {key}={value!r}" for key, value in measure.options.items())
    number = f'["{measure.attribute}"]' if measure.name.startswith(f"{measure.evaluator}.") else f".{measure.attribute}"
    public = unwrap(getattr(clip_geometry, function.__name__, place)) is function
    where = "clip_geometry" if public else function.__module__
    return f"{where}.{function.__name__}({arguments}{options}){number if measure.attribute else ''}"


def by_page() -> dict[str, list[Measure]]:
    """Name → its measures, in the order in which they are read: a measure with its variants, an evaluator with all of
    its numbers."""
    pages: dict[str, list[Measure]] = {}
    for measure in [*by_group(all=True), *filter(attrgetter("evaluator"), measures.values())]:
        pages.setdefault((measure.evaluator or measure.name).partition("[")[0], []).append(measure)
    return pages


def measures_page() -> str:
    """docs/measures.md: an index, a line for each of `by_page`."""
    groups: dict[str, dict[str, list[Measure]]] = {}
    for name, members in by_page().items():
        group = "evaluators" if members[0].evaluator else members[0].group
        groups.setdefault(group, {})[name] = members
    known = known_models()
    lines = dict.fromkeys((each["measure"], each["set"]) for model in known.values() for each in model["numbers"])
    template = Path(__file__).with_name("measures.md.j2")
    return render(template, groups=groups, bound=bound, known=known, lines=lines, with_error=with_error)
