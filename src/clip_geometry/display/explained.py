"""Explanations of measures in words: their catalog entries, and their values for known models."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from clip_geometry.catalog import GROUPS, Description, descriptions, read_yaml
from clip_geometry.display.numbers import bound, number

# a Description, or an object with its attributes: name, title, group, summary, reading, range, unit, …
Explanation: TypeAlias = Any


def explain(measure: str, explanations: Mapping[str, Explanation] = descriptions) -> Explanation | None:
    """Return the explanation of a measure, or of its base (`silhouette` for `silhouette[cosine]`), or None."""
    for name in (measure, measure.partition("[")[0]):
        if name in explanations:
            return explanations[name]
    return None


def group_order(group: str) -> int:
    """Return the position of a group of measures; unknown groups are last."""
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


def title_of(name: str, explanation: Explanation | None) -> str:
    """Return the title of a measure; a variant that is explained under its base name keeps its suffix."""
    if explanation is None:
        return name
    suffix = "" if explanation.name == name else f" [{name.partition('[')[2]}"
    return explanation.title + suffix


def facts(measure: Explanation) -> str:
    """Return range and direction; for a registered measure also its limit, invariances, needs and cost."""
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
        ]
        if measure.quadratic:
            parts.append("time grows with n²")
        if not measure.smooth:
            parts.append("no standard error")
        if not measure.by_default:
            parts.append("computed only if named")
    return "; ".join(parts)


@cache
def known_models() -> Mapping[str, Mapping[str, Any]]:
    """Return a mapping of model and data to the source of the embeddings and their core measures."""
    return read_yaml(Path(__file__).with_name("known_models.yaml"))


def values_of(model: str, measures: Iterable[str]) -> str:
    """Return the values of some measures of a known model in one line: "average_cosine 0.53 (image), 0.52 (text)"."""
    texts: dict[str, list[str]] = {name: [] for name in measures}
    for entry in known_models()[model]["numbers"]:
        modality = "" if entry["set"] == "both" else f" ({entry['set']})"
        texts.setdefault(entry["measure"], []).append(number(entry["value"]) + modality)
    return "; ".join(f"{name} {', '.join(texts[name])}" for name in dict.fromkeys(measures) if texts[name])
