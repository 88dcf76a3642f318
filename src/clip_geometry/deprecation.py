"""Deprecation warnings for renamed or removed public names, which keep working for at least one minor release."""

import warnings
from importlib import import_module
from typing import Any, NamedTuple


class Deprecated(NamedTuple):
    """An old public name.

    Attributes:
        new: The name that replaces it, such as "clip_geometry.geometry.isoscore".
        removed_in: The version that removes the old name, such as "0.3".
    """

    new: str
    removed_in: str


# old name → its replacement, for `clip_geometry.__getattr__`; empty before the first release
DEPRECATED: dict[str, Deprecated] = {}


def deprecated(old: str, entry: Deprecated) -> Any:
    """Return the replacement of an old name and issue a DeprecationWarning at the line that used it."""
    warnings.warn(
        f"clip_geometry.{old} is deprecated and will be removed in {entry.removed_in}; use {entry.new}",
        DeprecationWarning,
        stacklevel=3,
    )
    home, _, name = entry.new.rpartition(".")
    return getattr(import_module(home), name)
