"""Measure, explain, and repair the geometry of multimodal embeddings.

The public names and their modules are in __init__.pyi, which type checkers read, too. They are imported at first use,
so that `import clip_geometry` is instant.
"""

from typing import Any

import lazy_loader

from clip_geometry.deprecation import DEPRECATED, deprecated

_import, _, _names = lazy_loader.attach_stub(__name__, __file__)

__all__ = sorted({*_names, "__version__"})  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("clip-geometry")
    if name in DEPRECATED:
        return deprecated(name, DEPRECATED[name])
    return _import(name)


def __dir__() -> list[str]:
    return __all__
