"""The API reference: a page for the top level and one for each subpackage, whose docstrings mkdocstrings renders."""

import sys
from types import ModuleType

import clip_geometry as cg

TITLES = {
    "geometry": "Measures as functions",
    "transforms": "Transforms",
    "evaluate": "Evaluators",
    "search": "Mixed indexes",
    "training": "Losses and live measures",
    "encoders": "Encoders",
    "data": "Data sets",
}


def pages() -> dict[str, str]:
    """Name of a page → its Markdown."""
    subpackages = {name for name in dir(cg) if isinstance(getattr(cg, name), ModuleType)}
    if subpackages != set(TITLES):
        raise ValueError(f"scripts/site/api.py has no title for {sorted(subpackages ^ set(TITLES))}")
    top = [name for name in dir(cg) if name not in subpackages and not name.startswith("__")]
    made = {"clip_geometry.md": _page("Measure, compare, diagnose, embed, read", "clip_geometry", top)}
    for name, title in TITLES.items():
        made[f"{name}.md"] = _page(title, f"clip_geometry.{name}", dir(getattr(cg, name)))
    return made


def _home(package: str, name: str) -> str:
    """Return where mkdocstrings finds a name: `geometry.hubness` would be the module, not the function in it."""
    module = sys.modules.get(f"{package}.{name}")
    return package if module is None else module.__name__


def _page(title: str, package: str, names: list[str]) -> str:
    how = f"cg.{package.partition('.')[2]}".rstrip(".")
    intro = [f"# {title}", "", f"`import clip_geometry as cg`; these are attributes of `{how}`.", ""]
    return "\n".join([*intro, *(f"::: {_home(package, name)}.{name}\n" for name in sorted(names, key=str.lower))])
