"""Numbers as text: four significant digits, no false precision, and an en dash for missing values."""

import math
from collections.abc import Mapping
from typing import Any

MISSING = "–"
ROUNDING = 1e-12  # rounding error that float64 may leave in place of an exact 0
SMALLEST, LARGEST = 1e-6, 1e6  # range that is written without a power of ten


def as_number(value: Any) -> float | None:
    """Return `value` as a float, or None if it is missing, not a number, NaN or infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def number(value: Any) -> str:
    """Format a number: 0.8514, 87.31, 1234, 0.00012, 3.4 × 10⁻⁷; 0 for rounding errors.

    Anything that is not a finite number becomes an en dash.
    """
    value = as_number(value)
    if value is None:
        return MISSING
    if abs(value) < ROUNDING:
        return "0"
    if SMALLEST <= abs(value) < LARGEST:
        return fixed(value, _decimals(value))
    mantissa, exponent = f"{value:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa} × 10{raised}".replace("-", "−")


def in_ascii(value: float) -> str:
    """Format a number with four significant digits, in characters that can be copied: -0.0017, 3.9e-05."""
    return f"{value:.1e}" if value and abs(value) < 1e-4 else number(value).replace("−", "-")


def fixed(value: float, decimals: int) -> str:
    """Format a number with a fixed number of decimals and a typographic minus, but never as −0.00."""
    return f"{value:z.{decimals}f}".replace("-", "−")


def to_error(value: Any, error: Any, *others: Any) -> str:
    """Format `value` with the decimals that give its error two digits.

    Without an error, a small value gets the decimals of the largest of `others`, the numbers next to it: 0.0000 next to
    0.3000.
    """
    value = as_number(value)
    decimals = _error_decimals(error)
    if value is not None and decimals is not None:
        return fixed(value, decimals)
    sizes = [abs(x) for x in map(as_number, (value, *others)) if x is not None]
    largest = max(sizes, default=0.0)
    if value is not None and abs(value) < 1e-3 and largest >= SMALLEST:
        return fixed(value, max(4, _decimals(largest)))
    return number(value)


def plus_minus(value: Any, error: Any, *others: Any) -> str:
    """Format `value ± error`, with two digits of the error and as many decimals of the value; without an error,
    `value`."""
    decimals = _error_decimals(error)
    text = to_error(value, error, *others)
    return text if decimals is None or text == MISSING else f"{text} ± {fixed(error, decimals)}"


def with_error(row: Mapping[str, Any], *others: Any) -> str:
    """Format a row as `value [low, high]` if it has a 95% interval, as recall does, otherwise as `value ± error`."""
    value, error = row.get("value"), row.get("standard_error")
    low, high = row.get("low"), row.get("high")
    decimals = _error_decimals(error)
    if low is None or high is None or decimals is None:
        return plus_minus(value, error, *others)
    return f"{to_error(value, error, *others)} [{fixed(low, decimals)}, {fixed(high, decimals)}]"


def _decimals(value: float) -> int:
    """Return the decimals for four significant digits, but at most four decimals if these leave two digits."""
    exponent = _exponent(value, 4)
    return max(0, min(3 - exponent, max(4, 1 - exponent)))


def _error_decimals(error: Any) -> int | None:
    """Return the decimals that leave two digits of an error; None for no error, or one that is only rounding."""
    error = as_number(error)
    if error is None or not SMALLEST <= error < LARGEST:
        return None
    return max(0, 1 - _exponent(error, 2))


def _exponent(value: float, digits: int) -> int:
    """Return the power of ten after rounding to `digits` digits: 0.99999 is 1.000, not 1.0000."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2])


def brief(value: float) -> str:
    """Format a number for running text: 1.19, 0.24, and with one more decimal below a tenth, 0.017."""
    return fixed(value, 2 if abs(value) >= 0.0995 else 3)


def percent(share: float) -> str:
    """Format a share as 37%; use "under 1%" and "over 99%" for shares that only round to 0 or 1."""
    if 1e-9 < share < 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= share < 1 - 1e-9 else f"{share:.0%}"


def bound(value: Any) -> str:
    """Format a bound of a range: 0, 1, −1, ∞, d."""
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return str(value) if as_number(value) is None else f"{value:g}".replace("-", "−")
