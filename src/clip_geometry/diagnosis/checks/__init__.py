"""The checks, by subject, each with its threshold and the reason for it, beside the words of its finding."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module

from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding
from clip_geometry.registry import Registry

# modules, in the order in which their findings are told: what makes other findings doubtful comes first
MODULES = (
    "invalid_rows",
    "mixed_models",
    "pairs",
    "misplaced_rows",
    "not_unit",
    "manifest",
    "dead_dimensions",
    "low_precision",
    "copies",
    "truncated_captions",
    "hubs",
    "modality_gap",
    "too_few_rows",
)
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


checks: Registry[Check] = Registry("check", "clip-geometry diagnose --help")


def add_check(function: Callable[[Context], Iterator[Finding]]) -> Check:
    """Register a function as a check, whose docstring is its title and, after a blank line, its threshold."""
    title, _, threshold = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
    title = title[:1].lower() + title[1:].removesuffix(".")
    name = function.__name__
    return checks.add(name, Check(name, title, function, " ".join(threshold.split())))


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


for _module in MODULES:
    import_module(f"{__name__}.{_module}")
