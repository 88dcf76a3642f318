"""Numpy arrays from a plain pickle, which is not PyTorch's format, so torch.load(weights_only=True) refuses it."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.paths import existing_file
from clip_geometry.reading import first_line
from clip_geometry.registry import InputError, shown


def _latin1(text: str, encoding: str) -> bytes:
    """Stands for _codecs.encode, by which protocol 2 writes bytes, and which would take any codec."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text encoded as {encoding!r}")
    return text.encode("latin1")


def _reconstruct(kind: str, shape: tuple[int, ...], typecode: bytes) -> np.ndarray:
    """numpy's own, for arrays only: an empty one, whose state follows in the pickle."""
    return np.empty(0, np.int8)


def _frombuffer(buffer: bytes, dtype: Any, shape: tuple[int, ...], order: Any) -> np.ndarray:
    """numpy's own, as protocol 5 has it."""
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order=order)


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): "ndarray",  # only ever the first argument of _reconstruct, so nothing that can be called
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _frombuffer for core in ("core", "_core")},
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is refused")
        return ALLOWED[module, name]


def read_pickled_arrays(path: Path, what: str) -> list[np.ndarray]:
    """The arrays of a pickled list or tuple. Anything else in the pickle is refused: code is never run."""
    with existing_file(path, what).open("rb") as file:
        try:
            values = _ArraysOnly(file).load()
        except Exception as error:  # a damaged pickle raises nearly anything
            why = f"{type(error).__name__}: {first_line(error)}"
            raise InputError(f"{shown(path)} is no pickled list of arrays ({why})") from None
    numeric = isinstance(values, list | tuple) and all(
        isinstance(value, np.ndarray) and value.dtype.kind == "f" for value in values
    )
    if not numeric:
        raise InputError(f"{shown(path)} is no pickled list of arrays of floating-point numbers; {what} was expected")
    return list(values)
