"""Settings as plain Python values: whatever else was given is one clear sentence that names the argument."""

import math
from collections.abc import Callable, Iterable
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from clip_geometry.registry import InputError, did_you_mean, shown

if TYPE_CHECKING:
    Integer: TypeAlias = int
    Number: TypeAlias = float
    Flag: TypeAlias = bool
else:  # NumPy's and torch's are some too, and any other value is our sentence, not a type checker's
    Integer = Number = Flag = Any

T = TypeVar("T")

SEEDS = 2**32 - 1  # the largest that every generator takes
LARGEST = 2**31 - 1  # of counts that the data does not bound
DRAWS = 100_000  # enough for p-values of 1e-5


def whole_number(value: Any, name: str, *, least: int = 1, most: int = LARGEST, of: str = "") -> int:
    """`value` as an int from `least` to `most`; NumPy's and torch's integers are some, True and 2.0 are none.

    of: what sets the bounds, or what else may be given, for the sentence. Raises InputError for anything else.
    """
    try:
        single = getattr(value, "ndim", 0) == 0 and not isinstance(_plain(value), bool)
        number = index(value) if single else None
    except Exception:  # of an object without __index__, or of whatever a foreign one raises
        number = None
    if number is None or not least <= number <= most:
        unbounded = most == LARGEST and (number is None or number < least)
        bounds = f"from {least} on" if unbounded else f"from {least} to {most}"
        raise InputError(f"{name} = {shown(value)}; expected a whole number {bounds}{of}")
    return number


def real_number(value: Any, name: str, allowed: Callable[[float], bool], expected: str) -> float:
    """`value` as a float for which `allowed` is true; it is false for NaN. NumPy's and torch's numbers are some.

    expected: such numbers in words. Raises InputError for anything else.
    """
    try:
        plain = _plain(value)
        number = float(plain) if isinstance(plain, Real) and not isinstance(plain, bool) else math.nan
    except Exception:  # an integer beyond float64, or whatever a foreign object raises
        number = math.nan
    if not allowed(number):
        raise InputError(f"{name} = {shown(value)}; expected {expected}")
    return number


def positive_number(value: Any, name: str, *, of: str = "") -> float:
    """`value` as a positive, finite float. Raises InputError for anything else."""
    return real_number(value, name, lambda number: 0 < number < math.inf, f"a positive, finite number{of}")


def flag(value: Any, name: str) -> bool:
    """`value` if it is true or false, NumPy's and torch's included. Raises InputError for anything else: "no" is true
    in Python."""
    try:
        plain = _plain(value)
    except Exception:  # whatever a foreign object raises
        plain = None
    if not isinstance(plain, bool):
        raise InputError(f"{name} = {shown(value)}; expected True or False")
    return plain


def one_of(value: T, name: str, known: Iterable[str]) -> T:
    """`value` if it is one of the known words. Raises InputError for anything else."""
    known = tuple(known)
    if not isinstance(value, str) or value not in known:
        near = did_you_mean(value, known) if isinstance(value, str) else ""
        listed = f"; known are {', '.join(map(repr, known))}"
        raise InputError(f"{name} {shown(value)} is unknown{near or listed}")
    return value


def members(value: Any) -> list | None:
    """What is in a list, an array, a set, …; None where the value is a single one."""
    try:
        plain = _plain(value)
        return list(plain) if isinstance(plain, Iterable) and not isinstance(plain, str | bytes) else None
    except Exception:  # of a tensor without values, or whatever a foreign object raises
        return None


def block_number(value: Any) -> int:
    """The rows of a block."""
    return whole_number(value, "block_size")


def seed_number(value: Any) -> int:
    """A seed that every generator takes."""
    return whole_number(value, "seed", least=0, most=SEEDS)


def _plain(value: Any) -> Any:
    """NumPy's and torch's values as Python's."""
    return value.tolist() if hasattr(value, "tolist") else value
