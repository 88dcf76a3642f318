"""Text from Jinja templates stored with the code that computes their numbers: sentences as macros, and whole pages."""

import base64
import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from clip_geometry.display.numbers import brief, fixed, number, percent, plus_minus
from clip_geometry.modalities import plural


def listed(parts: Iterable[str]) -> str:
    """Join words as `a, b and c`."""
    *head, last = parts
    return f"{', '.join(head)} and {last}" if head else last


def _share(count: int, n: int) -> str:
    """Return a percentage with its binomial standard error, 6.2 ± 0.3%; without it if none or all are counted."""
    error = 100 * math.sqrt(count * (n - count) / n) / n
    return plus_minus(100 * count / n, error) + "%"


_ENVIRONMENT = Environment(  # plain text, not HTML
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)
_ENVIRONMENT.filters |= {
    "fixed": fixed,  # {{ gap|fixed(2) }}
    "percent": percent,
    "brief": brief,
    "number": number,
    "percentage": lambda share: f"{100 * share:.3g}%",  # for chance levels such as 1.25%, which `percent` rounds
    "listed": listed,
    "plural": plural,  # images, audio rows
    "count": "{:,}".format,
    "probability": lambda p: "< 10⁻¹²" if p < 1e-12 else f"= {number(p)}",
    "of": lambda count, n: f"{count:,} of {n:,} ({_share(count, n)})",  # {{ copies|of(rows) }}
    "sentence": lambda text: text[:1].upper() + text[1:],  # unlike `capitalize`, keeps the case of the rest
}


class Words:
    """The macros of one template.

    Args:
        file: The template, `words.j2` in the folder of the experiment.

    Example:
        >>> words = Words(Path(__file__).with_name("words.j2"))  # doctest: +SKIP
        >>> words("gap", first=0.81, last=0.24)  # doctest: +SKIP
        'The gap falls from 0.81 to 0.24.'
    """

    def __init__(self, file: Path):
        self.macros: Any = _ENVIRONMENT.from_string(file.read_text(encoding="utf-8")).module

    def __call__(self, macro: str, /, *arguments: Any, **values: Any) -> str:
        """Return the text of a macro with whitespace collapsed; empty if the macro returns nothing."""
        return " ".join(getattr(self.macros, macro)(*arguments, **values).split())


def html_templates(*folders: str | Path) -> Environment:
    """Return the page templates in these folders. Values are escaped, and undefined names are errors."""
    return Environment(
        loader=FileSystemLoader(folders), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip


def security_policy(*, scripts: Iterable[str], styles: Iterable[str], evaluates: bool = False) -> str:
    """Return a content security policy for a page that loads nothing.

    Args:
        scripts: The texts of the inline scripts that may run, exactly as in the page.
        styles: The texts of the inline style sheets that apply.
        evaluates: Whether these scripts compile code themselves.
    """

    def sources(texts: Iterable[str]) -> str:
        digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    script_sources = sources(scripts) + " 'unsafe-eval'" * evaluates
    return (
        f"default-src 'none'; img-src data: blob:; style-src {sources(styles)}; script-src {script_sources}; "
        "base-uri 'none'; form-action 'none'"
    )


def render(file: Path, **values: Any) -> str:
    """Render a whole page from its template, with the filters of the sentences."""
    return filled(file.read_text(encoding="utf-8"), **values)


def filled(text: str, **values: Any) -> str:
    """Replace each `{{ }}` in a text, with the filters of the sentences."""
    return _ENVIRONMENT.from_string(text).render(values)
