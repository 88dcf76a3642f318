"""Losses and live measures for training loops and their loggers.

Names are imported at first use, each with the one external library that it needs.
"""

from importlib import import_module
from typing import Any

from clip_geometry.registry import InputError

PREFIX = "geometry/"  # prefix of all logged names

_HOME = {
    "curves": ["plot_training"],
    "lightning": ["LightningGeometry"],
    "losses": ["CosReg", "IStar", "SIGReg"],
    "metrics": ["EmbeddingGeometry"],
    "monitor": ["CollapseAlarm", "CollapseWarning", "GeometryMonitor"],
    "sentence_transformers": ["GeometryEvaluator"],
    "transformers": ["GeometryCallback"],
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}
_OPTIONAL = ("torchmetrics", "lightning", "sentence_transformers", "transformers")

__all__ = sorted(_MODULE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULE[name]}"), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _OPTIONAL:
            raise
        install = f"pip install {package.replace('_', '-')}"
        raise InputError(f"{name} needs {package}, which is not installed: {install}") from None


def __dir__() -> list[str]:
    return __all__
