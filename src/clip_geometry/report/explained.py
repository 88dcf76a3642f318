"""What the registry knows about the measures, in words: for the terminal, the report and docs/measures.md."""

from collections.abc import Sequence
from inspect import unwrap

import clip_geometry
from clip_geometry.evaluators import evaluators
from clip_geometry.geometry import GROUPS, Measure, by_group
from clip_geometry.references import references
from clip_geometry.report.numbers import bound
from clip_geometry.report.table import Explanation

PAGE_HEAD = """# The measures

Made from the registry by `python scripts/build_docs.py`; the same words as in `clip-geometry list measures` and in the
report. Rows are w_i, n of them in d dimensions; u_i = w_i/‖w_i‖; μ the mean; C the covariance. Every measure is one
function, accumulates in float64 and is checked against its definition in `tests/support/oracles*.py` on nine clouds and
in four precisions. No measure normalises, centres, samples or drops rows silently.
"""
PAGE_EVALUATORS = """# The evaluators

Functions with several numbers: each is a row, `retrieval.image_to_text.r_at_1`, and the evaluator's name stands for
all of them. Taken where they are named (`measure --measures retrieval`, `measures: [retrieval]` in a config).
"""
PAGE_FOOT = """# In the library only

- `clip_geometry.isoscore_star(x, covariance, zeta=…)`: IsoScore of the covariance shrunken towards that of a larger
  sample (Rudman & Eickhoff 2024).
- `clip_geometry.IStar(lambda_, zeta)`, `clip_geometry.CosReg(lambda_)`: penalties on isotropy and on the average
  cosine of hidden states, for training loops.
- `clip_geometry.Moments.of(x)`: mean, covariance and fourth moments of rows, which add up (`a + b`) and reduce over
  processes (`all_reduce`); isoscore, isoscore_star, participation_ratio and effective_rank take them in place of rows.
- `clip_geometry.silhouette_samples`, `singular_values`, `coordinate_std`, `conformity`, `cone`: what stands behind
  the numbers.
"""


def facts(measure: Explanation) -> str:
    """Range, direction, limit, invariances, needs and cost of a Measure; range and direction of any other."""
    low, high = measure.range
    unit = f" {measure.unit}" if measure.unit else ""
    parts = [f"range {bound(low)} … {bound(high)}{unit}", measure.direction]
    return "; ".join([*parts, *_more_facts(measure)] if isinstance(measure, Measure) else parts)


def _more_facts(measure: Measure) -> list[str]:
    limit = "its null value on a Gaussian depends on n and d"
    if measure.at_gaussian is not None:
        limit = f"{bound(measure.at_gaussian)} on an isotropic Gaussian as n grows"
    return [
        limit,
        f"invariant to {', '.join(measure.invariances) or 'none of the maps that are checked'}",
        f"needs {', '.join(measure.needs) or 'nothing but rows'}",
        f"n ≥ {measure.least_n}" + (f", d ≥ {measure.least_d}" if measure.least_d > 1 else ""),
        *(["time grows with n²"] if measure.quadratic else []),
        *([] if measure.smooth else ["no standard error"]),
        *([] if measure.by_default else ["taken only where it is named"]),
    ]


def place(measure: Measure) -> str:
    """`clip_geometry.isoscore(x, unbiased=True)`: the call that gives it; by its module where the function is not
    among the public names. Of an evaluator it is one number of several: `clip_geometry.zero_shot(…)["top_1"]`."""
    function = unwrap(measure.function)
    arguments = {
        "rows": "x",
        "labelled rows": "x, labels",
        "two sets": "image, text",
        "pairs": "image, text",
        "distinct pairs": "image, text",
        "matched sets": "image, text",
        "classes": "image, labels, class_text",
        "train and test": "train_x, train_y, test_x, test_y",
        "train, test and classes": "transform, fit_x, fit_labels, image, labels, class_text",
        "languages": "source, target" if measure.attribute else "x, languages",  # a silhouette takes them as labels
    }[measure.takes]
    options = "".join(f", {key}={value!r}" for key, value in measure.options.items())
    number = f'["{measure.attribute}"]' if measure.name in evaluators else f".{measure.attribute}"
    public = unwrap(getattr(clip_geometry, function.__name__, place)) is function
    where = "clip_geometry" if public else function.__module__
    return f"{where}.{function.__name__}({arguments}{options}){number if measure.attribute else ''}"


def measures_page() -> str:
    """docs/measures.md."""
    members = [*by_group(all=True), *references.values()]
    sections = [_section(group, [m for m in members if m.group == group]) for group in GROUPS]
    found = dict.fromkeys(m.name.partition(".")[0] for m in evaluators.values())
    numbers = [_section(name, _numbers_of(name), name=f"`{name}`") for name in found]
    return "\n".join([PAGE_HEAD, *sections, PAGE_EVALUATORS, *numbers, PAGE_FOOT])


def _numbers_of(evaluator: str) -> list[Measure]:
    return [m for m in evaluators.values() if m.name.partition(".")[0] == evaluator]


def _section(group: str, members: Sequence[Measure], *, name: str = "") -> str:
    return f"## {name or group[0].upper() + group[1:]}\n\n" + "\n".join(map(_entry, members))


def _entry(m: Measure) -> str:
    lines = [
        f"### {m.title}: `{m.name}`\n",
        f"{m.summary} {m.reading}\n",
        f"**Beware.** {m.trap}\n",
        f"- {m.formula}",
        f"- {facts(m)}",
        f"- `{place(m)}`",
        f"- {m.reference}\n",
    ]
    return "\n".join(lines)
