"""Plain objects and NumPy arrays from pickles of other programs: code is never run."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.io.reading import first_line
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, shown


def _latin1(text: str, encoding: str) -> bytes:
    """Replaces _codecs.encode, by which protocol 2 writes bytes and which would take any codec."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text encoded as {encoding!r}")
    return text.encode("latin1")


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): "ndarray",  # only ever the first argument of _reconstruct, so nothing that can be called
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
}
for _core in ("numpy.core", "numpy._core"):
    # in place of numpy's own, for arrays only: an empty one, whose state follows in the pickle
    ALLOWED[f"{_core}.multiarray", "_reconstruct"] = lambda kind, shape, typecode: np.empty(0, np.int8)
    ALLOWED[f"{_core}.numeric", "_frombuffer"] = lambda buffer, dtype, shape, order: np.reshape(  # of protocol 5
        np.frombuffer(buffer, dtype=dtype), shape, order=order
    )


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is refused")
        return ALLOWED[module, name]


def read_pickle(path: Path, what: str, encoding: str = "ASCII") -> Any:
    """The content of a pickle of plain objects and arrays.

    Args:
        path: Of the pickle.
        what: What was expected, such as "a pickled list of arrays".
        encoding: Of the texts that Python 2 wrote.

    Raises:
        InputError: It holds anything else, or is damaged.
    """
    with existing_file(path, what).open("rb") as file:
        try:
            return _ArraysOnly(file, encoding=encoding).load()
        except Exception as error:  # a damaged pickle raises nearly anything
            why = first_line(error) or "it is truncated"
            raise InputError(f"{shown(path)} is not {what}: {why}") from None
