"""Losses and live measures for training loops and their loggers.

Names are imported at first use, each with the one optional library that it needs.
"""

from typing import Any

import lazy_loader

from clip_geometry.registry import InputError

PREFIX = "geometry/"  # prefix of the names that are logged

_import, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_OPTIONAL = ("torchmetrics", "lightning", "sentence_transformers", "transformers")


def __getattr__(name: str) -> Any:
    try:
        return _import(name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _OPTIONAL:
            raise
        install = f"pip install {package.replace('_', '-')}"
        raise InputError(f"{name} needs {package}, which is not installed: {install}") from None
