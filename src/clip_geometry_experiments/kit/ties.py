"""Tests whether two numbers differ beyond their standard errors."""

import math
from collections.abc import Mapping
from typing import Any

from clip_geometry.display.numbers import as_number

EQUAL = 1e-12  # rounding in float64 may turn an exact 0 into a value of this size
TIE = 2.0  # two values are a tie up to this many standard errors of their difference


def differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Return whether the values of two rows differ by more than two standard errors of their difference.

    The rows do not say how their errors depend on each other, so the samples are assumed to be independent. This errs
    on the side of missing a difference rather than calling a tie one. A constant has a standard error of 0.

    Args:
        one: A row with `value` and `standard_error`.
        other: A row with `value` and `standard_error`.

    Returns:
        True for a difference, False for a tie. None, which is neither, if the values differ and a standard error is
        unknown.
    """
    step = abs(one["value"] - other["value"])
    if step <= EQUAL:
        return False
    errors = [as_number(row.get("standard_error")) for row in (one, other)]
    known = [error for error in errors if error is not None]
    return step > TIE * math.hypot(*known) if len(known) == len(errors) else None
