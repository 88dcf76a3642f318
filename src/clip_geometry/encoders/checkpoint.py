"""Weights from files: tensors and arrays only, never code; checked against the model before they are copied."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from clip_geometry.paths import existing_file
from clip_geometry.reading import first_line, read_checkpoint, read_safetensors
from clip_geometry.registry import InputError, shown


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Tensors by name from .safetensors, or from a pickle that holds tensors only (weights_only).

    Training checkpoints ({"state_dict": …, …}) and names prefixed by DistributedDataParallel are unwrapped.
    """
    if path.suffix == ".safetensors":
        values = read_safetensors(path, "a checkpoint file", framework="pt")[1]
    else:
        values = read_checkpoint(path)
    if isinstance(values, Mapping) and isinstance(values.get("state_dict"), Mapping):
        values = values["state_dict"]
    if not isinstance(values, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in values.items()
    ):
        raise InputError(f"{shown(path)} holds no state dict: a mapping from parameter names to tensors was expected")
    if values and all(name.startswith("module.") for name in values):
        return {name.removeprefix("module."): value for name, value in values.items()}
    return dict(values)


def load_state_dict(model: nn.Module, state: Mapping[str, Tensor], origin: str) -> None:
    """Copies `state` into `model`; raises InputError for the first name or shape that does not fit."""
    expected = model.state_dict()
    # a buffer that older versions of transformers saved, always 0, 1, 2, …
    given = {n: v for n, v in state.items() if n in expected or not n.endswith("embeddings.position_ids")}
    missing = [name for name in expected if name not in given]
    extra = [name for name in given if name not in expected]
    if missing or extra:
        what = "lacks" if missing else "has, but the model has not,"
        names = missing or extra
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise InputError(f"{origin} does not fit the architecture: the file {what} {shown(names[0])}{more}")
    for name, value in given.items():
        if value.shape != expected[name].shape:
            raise InputError(
                f"{origin} does not fit the architecture: {shown(name)} has shape {tuple(value.shape)} in the file, "
                f"{tuple(expected[name].shape)} in the model"
            )
        if value.is_floating_point() != expected[name].is_floating_point() or value.is_meta:
            raise InputError(
                f"{origin} does not fit the architecture: {shown(name)} is {value.dtype} on {value.device} in the "
                f"file, {expected[name].dtype} in the model"
            )
    try:
        model.load_state_dict(given)
    except (RuntimeError, NotImplementedError) as error:  # sparse or quantized tensors
        raise InputError(f"{origin} does not fit the architecture: {first_line(error)}") from None


# --- numpy arrays from a plain pickle, which is not PyTorch's format, so that torch.load(weights_only=True) refuses it


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
