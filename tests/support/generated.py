"""What the build of the site generates, rendered from its sources as scripts/site/hooks.py does."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

SITE = Path(__file__).parents[2] / "scripts" / "site"


def site_module(name: str) -> ModuleType:
    """A module of scripts/site; these import each other by their bare names, as mkdocs lets them."""
    if not SITE.exists():
        pytest.skip("needs a checkout, with scripts/", allow_module_level=True)
    if str(SITE) not in sys.path:
        sys.path.append(str(SITE))
    return import_module(name)


def generated(source: str) -> dict[str, str]:
    """Path below docs/ → Markdown, of a page (`claims.md`) or of the pages of a folder (`findings/`), rendered once."""
    return site_module("generated").pages(source)


def generated_page(path: str) -> str:
    """The Markdown of one generated page."""
    return generated(path)[path]
