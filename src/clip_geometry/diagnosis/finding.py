"""What a check found: evidence with its error, what follows from it, and what to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from clip_geometry.display.words import Words

Severity = Literal["error", "warning", "note"]


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
        >>> from clip_geometry.diagnosis.finding import Finding
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


def finding(check: str, severity: Severity, *modalities: str, **values: Any) -> Finding:
    """A finding whose three texts are the macros of checks/CHECK.j2, which take `modalities` and the values."""
    words = _words(check)
    texts = (words(macro, v={"modalities": modalities, **values}) for macro in ("evidence", "consequence", "remedy"))
    return Finding(check, severity, *texts, modalities=modalities, values=values)


@cache
def _words(check: str) -> Words:
    return Words(Path(__file__).with_name("checks") / f"{check}.j2")
