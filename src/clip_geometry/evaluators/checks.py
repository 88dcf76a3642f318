"""Settings that are numbers, as plain Python numbers: whatever else was given is one clear sentence."""

import math
from collections.abc import Iterable
from numbers import Real
from operator import index
from typing import Any

from clip_geometry.registry import InputError

SEEDS = 2**32 - 1  # the largest that every generator takes


def whole_number(value: Any, name: str, *, least: int = 1, most: int | None = None, of: str = "") -> int:
    """`value` as an int from `least` to `most`; NumPy's whole numbers are some, True and 2.0 are none.

    of: what sets the bounds, or what else may be given, for the sentence. Raises InputError for anything else.
    """
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        bounds = f"from {least} on" if most is None else f"from {least} to {most}"
        raise InputError(f"{name} = {value!r}; expected a whole number {bounds}{of}")
    return number


def positive_number(value: Any, name: str, *, of: str = "") -> float:
    """`value` as a positive, finite float; NumPy's numbers are some. Raises InputError for anything else."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    number = float(plain) if isinstance(plain, Real) and not isinstance(plain, bool) else math.nan
    if not 0 < number < math.inf:
        raise InputError(f"{name} = {value!r}; expected a positive, finite number{of}")
    return number


def members(value: Any) -> list | None:
    """What is in a list, an array, a set, …; None where the value is a single one."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    return list(plain) if isinstance(plain, Iterable) and not isinstance(plain, str) else None


def seed_number(value: Any) -> int:
    return whole_number(value, "seed", least=0, most=SEEDS)
