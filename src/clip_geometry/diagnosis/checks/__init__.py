"""The checks, by subject, each with its threshold and the reason for it, beside the words of its finding."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clip_geometry import catalog
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding
from clip_geometry.registry import Registry, import_all

SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: As in its findings.
        title: What it looks for.
        function: Yields findings about the sets of a context.
        threshold: From when on it reports, and why there.

    Example:
        >>> from clip_geometry.diagnosis.checks import checks
        >>> checks["not_unit"].title
        'rows that are not of length 1'
    """

    name: str
    title: str
    function: Callable[[Context], Iterator[Finding]]
    threshold: str


CATALOG = catalog.read(Path(__file__).parent)
checks: Registry[Check] = Registry("check", "clip-geometry diagnose --help", dict.fromkeys(CATALOG, __name__))


def add_check(function: Callable[[Context], Iterator[Finding]]) -> Check:
    """Register a function as the check of its name, which catalog.yaml explains."""
    name = function.__name__
    return checks.add(name, Check(name, function=function, **CATALOG[name]))


def run_checks(context: Context, names: Iterable[str] | None = None) -> list[Finding]:
    """Run checks.

    Args:
        context: The sets.
        names: Of the checks; default: all.

    Returns:
        Their findings, errors first, then warnings and notes. What did not run, and why, is in `context.not_run`.

    Raises:
        InputError: If a name is unknown.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> from clip_geometry.diagnosis.checks import Context, run_checks
        >>> x = np.random.default_rng(0).normal(size=(50, 8))
        >>> x[7] = 0
        >>> [found.evidence for found in run_checks(Context({"image": cg.Embeddings(x, "image")}), ["invalid_rows"])]
        ['1 of 50 (2.0 ± 2.0%) image rows is zero or holds NaN or infinity, the first of them row 7.']
    """
    found = [each for name in (checks if names is None else names) for each in checks[name].function(context)]
    return sorted(found, key=lambda each: SEVERITIES.index(each.severity))


import_all(__name__)
