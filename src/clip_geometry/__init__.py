"""clip-geometry: measures, explains and changes the geometry of multimodal embeddings.

The public names and their modules are in __init__.pyi, which type checkers read, too. Names are imported at first use,
so that `import clip_geometry` is instant.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_MODULE = {
    alias.name: str(node.module)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}  # name → its module

__all__ = sorted(_MODULE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'clip_geometry' has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(_MODULE[name]), name))  # asked for once


def __dir__() -> list[str]:
    return __all__
