"""What is known of a measure, in words: its entry in the catalog, and its values for known models."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from clip_geometry.catalog import GROUPS, Description, descriptions, read_yaml
from clip_geometry.display.numbers import bound, number

Explanation: TypeAlias = Any  # a Description, or what has its name, title, group, summary, reading, range, unit, …


def explain(measure: str, explanations: Mapping[str, Explanation] = descriptions) -> Explanation | None:
    """Return the explanation of the measure, else of its base (`silhouette` of `silhouette[cosine]`), else None."""
    for name in (measure, measure.partition("[")[0]):
        if name in explanations:
            return explanations[name]
    return None


def group_order(group: str) -> int:
    """Return the place of a group of measures; that of unknown ones is last."""
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


def title_of(name: str, explanation: Explanation | None) -> str:
    """Return the title of a measure; a variant that is explained under its base name keeps the variant."""
    if explanation is None:
        return name
    return explanation.title + ("" if explanation.name == name else f" [{name.partition('[')[2]}")


def facts(measure: Explanation) -> str:
    """Return range and direction; of a measure also its limit, invariances, needs and cost."""
    low, high = measure.range
    unit = f" {measure.unit}" if measure.unit else ""
    parts = [f"range {bound(low)} … {bound(high)}{unit}", measure.direction]
    if isinstance(measure, Description):
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


@cache
def known_models() -> Mapping[str, Mapping[str, Any]]:
    """Model and data → where the embeddings are from, and the core measures of them."""
    return read_yaml(Path(__file__).with_name("known_models.yaml"))


def values_of(model: str, measures: Iterable[str]) -> str:
    """The values of some measures of one of `known_models` in a line: "average_cosine 0.53 (image), 0.52 (text)"."""
    texts: dict[str, list[str]] = {name: [] for name in measures}
    for each in known_models()[model]["numbers"]:
        of = "" if each["set"] == "both" else f" ({each['set']})"
        texts.setdefault(each["measure"], []).append(number(each["value"]) + of)
    return "; ".join(f"{name} {', '.join(texts[name])}" for name in dict.fromkeys(measures) if texts[name])
