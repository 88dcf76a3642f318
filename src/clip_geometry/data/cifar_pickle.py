"""Reading CIFAR's pickles, which Python 2 wrote, without running what a pickle may ask for.

torchvision's CIFAR100 is not used for it: it unpickles whatever it finds, and takes no file but the original ones.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.reading import first_line
from clip_geometry.registry import InputError, shown

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArrayUnpickler(pickle.Unpickler):
    """Builds plain objects and numpy arrays only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in one of CIFAR's files. Raises InputError for any other content."""
    try:
        with path.open("rb") as file:
            content = _ArrayUnpickler(file, encoding="latin1").load()
    except Exception as error:  # a damaged pickle raises anything
        why = first_line(error) or "it is truncated"
        raise InputError(f"{shown(path)} is not one of CIFAR's pickles: {why}") from None
    if not isinstance(content, dict):
        raise InputError(f"{shown(path)} is not one of CIFAR's pickles: it holds no dictionary")
    return content
