"""The facts of a measure in a sentence, for the terminal and the report."""

from clip_geometry.catalog import Description
from clip_geometry.display.numbers import bound
from clip_geometry.display.table import Explanation


def facts(measure: Explanation) -> str:
    """Range and direction; of a measure also its limit, invariances, needs and cost."""
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
