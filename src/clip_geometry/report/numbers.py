"""Numbers for reading: four significant digits, no false precision, no crash on what is missing."""

import math
from typing import Any

MISSING = "–"


def as_number(value: Any) -> float | None:
    """`value` as a float, or None where it is missing, no number, NaN or infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def number(value: Any, digits: int = 4) -> str:
    """0.8514, 87.31, 1234, 1.2 × 10⁻⁵; an en dash for what is no number."""
    value = as_number(value)
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        return f"{value:.{min(decimals, digits)}f}".replace("-", "−")
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa} × 10{_superscript(int(exponent))}".replace("-", "−")


def plus_minus(value: Any, error: Any) -> str:
    """`value ± error`, the error with two digits and the value with as many decimals; the value alone without one."""
    value, spread = as_number(value), as_number(error)
    if value is None or spread is None or not 1e-6 <= spread < 1e6:
        return number(value)
    decimals = max(0, 1 - math.floor(math.log10(spread)))
    return f"{value:.{decimals}f} ± {spread:.{decimals}f}".replace("-", "−")


def null_number(null: Any, value: Any) -> str:
    """A null value beside its value: what is 0 but for sampling noise shows as such, unless the value is as small."""
    null, value = as_number(null), as_number(value)
    if null is not None and value is not None and abs(null) < 1e-4 and abs(value) >= 1e-3:
        return f"{null:z.4f}".replace("-", "−")
    return number(null)


def bound(value: Any) -> str:
    """A bound of a range: 0, 1, −1, ∞, d."""
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if as_number(value) is None:
        return str(value)
    return f"{value:g}".replace("-", "−")


def _superscript(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
