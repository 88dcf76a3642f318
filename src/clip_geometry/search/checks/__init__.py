"""The checks, by subject, each with its threshold and the reason for it, beside the words of its finding."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from clip_geometry import catalog
from clip_geometry.display.words import Words
from clip_geometry.registry import Registry, import_all
from clip_geometry.search.checks.context import Context

Severity: TypeAlias = Literal["error", "warning", "note"]

HERE = Path(__file__).parent
SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """One finding of a check.

    Attributes:
        check: Name of the check, such as "shifted_pairs".
        severity: "error" if results of the index are wrong, "warning" if they are worse than they could be, "note" if
            the reader should know it.
        evidence: What was seen, with its standard error or p-value.
        consequence: What it does to searches and measurements.
        remedy: What to do.
        modalities: The sets concerned.
        values: The same numbers for programs; row numbers are those of the folder.

    Example:
        >>> from clip_geometry.search.checks import Finding
        >>> found = Finding("hubs", "warning", "Row 3 is everywhere.", "It hides others.", "Drop it.", ("image",))
        >>> print(found)
        hubs (image, warning): Row 3 is everywhere. It hides others. Drop it.
    """

    check: str
    severity: Severity
    evidence: str
    consequence: str
    remedy: str
    modalities: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        where = ", ".join((*self.modalities, self.severity))
        return f"{self.check} ({where}): {self.evidence} {self.consequence} {self.remedy}"


Findings: TypeAlias = Iterator[Finding]


def finding(check: str, severity: Severity, *modalities: str, **values: Any) -> Finding:
    """Return a finding whose three texts are the macros of CHECK.j2, which take `modalities` and the values."""
    words = _words(check)
    texts = (words(macro, v={"modalities": modalities, **values}) for macro in ("evidence", "consequence", "remedy"))
    return Finding(check, severity, *texts, modalities=modalities, values=values)


@cache
def _words(check: str) -> Words:
    return Words(HERE / f"{check}.j2")


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: As in its findings.
        title: What it looks for.
        function: Yields findings about the sets of a context.
        threshold: From when on it reports, and why there.

    Example:
        >>> from clip_geometry.search.checks import checks
        >>> checks["not_unit"].title
        'rows that are not of length 1'
    """

    name: str
    title: str
    function: Callable[[Context], Findings]
    threshold: str


CATALOG = catalog.read(HERE)
checks: Registry[Check] = Registry("check", "clip-geometry diagnose --help", dict.fromkeys(CATALOG, __name__))


def add_check(function: Callable[[Context], Findings]) -> Check:
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
        >>> from clip_geometry.search.checks import Context, run_checks
        >>> x = np.random.default_rng(0).normal(size=(50, 8))
        >>> x[7] = 0
        >>> [found.evidence for found in run_checks(Context({"image": cg.Embeddings(x, "image")}), ["invalid_rows"])]
        ['1 of 50 (2.0 ± 2.0%) image rows is zero or holds NaN or infinity, the first of them row 7.']
    """
    found = [each for name in (checks if names is None else names) for each in checks[name].function(context)]
    return sorted(found, key=lambda each: SEVERITIES.index(each.severity))


import_all(__name__)
