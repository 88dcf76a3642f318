"""Whether two numbers differ beyond their errors."""

import math
from collections.abc import Mapping
from typing import Any

from clip_geometry.display.numbers import as_number

EQUAL = 1e-12  # what float64 may leave of an exact 0
TIE = 2.0  # standard errors of a difference, up to which two values are a tie


def differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Whether the values of two rows differ by more than two standard errors of their difference; None, which is
    neither a difference nor a tie, where they differ and an error is not known.

    The rows do not say how their errors depend on each other. Errors of independent samples are assumed, which rather
    miss a difference than call a tie one. A constant has a standard error of 0.
    """
    step = abs(one["value"] - other["value"])
    if step <= EQUAL:
        return False
    errors = [as_number(row.get("standard_error")) for row in (one, other)]
    known = [error for error in errors if error is not None]
    return step > TIE * math.hypot(*known) if len(known) == len(errors) else None
