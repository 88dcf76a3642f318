"""Numbers for reading: four significant digits, no false precision, no crash on what is missing."""

import math
from typing import Any

MISSING = "–"


def as_number(value: Any) -> float | None:
    """`value` as a float, or None where it is missing, no number, NaN or infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def number(value: Any) -> str:
    """0.8514, 87.31, 1234, 1.2 × 10⁻⁵; an en dash for what is no number."""
    value = as_number(value)
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e6:
        decimals = 3 - math.floor(math.log10(abs(value)))
        return fixed(value, min(max(decimals, 0), 4))
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa} × 10{_superscript(int(exponent))}".replace("-", "−")


def fixed(value: float, decimals: int) -> str:
    """So many decimals, with a typographic minus and never −0.00."""
    return f"{value:z.{decimals}f}".replace("-", "−")


def beside(value: Any, *others: Any) -> str:
    """`number`, but 0.0000 for what is 0 to the digits of one of the others that it is read beside."""
    value = as_number(value)
    neighbours = [abs(other) for other in map(as_number, others) if other is not None]
    if value is not None and abs(value) < 1e-4 and max(neighbours, default=0.0) >= 1e-3:
        return fixed(value, 4)
    return number(value)


def plus_minus(value: Any, error: Any) -> str:
    """`value ± error`, the error with two digits and the value with as many decimals; the value alone without one."""
    value, spread = as_number(value), as_number(error)
    if value is None or spread is None or not 1e-6 <= spread < 1e6:
        return number(value)
    decimals = max(0, 1 - math.floor(math.log10(spread)))
    return f"{fixed(value, decimals)} ± {fixed(spread, decimals)}"


def percent(share: float) -> str:
    """37%; "under 1%" and "over 99%" for what only rounds to nothing or to all."""
    if 1e-9 < share < 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= share < 1 - 1e-9 else f"{share:.0%}"


def bound(value: Any) -> str:
    """A bound of a range: 0, 1, −1, ∞, d."""
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if as_number(value) is None:
        return str(value)
    return f"{value:g}".replace("-", "−")


def _superscript(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
