""".safetensors: tensors "image" and "text", or a single one; bfloat16 becomes float32, exactly."""

from pathlib import Path

import numpy as np

from clip_geometry import reading
from clip_geometry.embeddings import Embeddings
from clip_geometry.formats.vectors import from_arrays
from clip_geometry.registry import InputError, shown


def read_safetensors(path: Path) -> dict[str, Embeddings]:
    """The tensors "image" and "text" (`vectors.NAMES`), or a single one of any name; and "labels"."""
    arrays: dict[str, np.ndarray] = {}
    dtypes: dict[str, str] = {}
    _, tensors = reading.read_safetensors(path, framework="pt")
    for name, tensor in tensors.items():
        arrays[name], dtypes[name] = _array(tensor, f"{shown(path)}, tensor {shown(name)},")
    return from_arrays(arrays, path, dtypes)


def _array(tensor, source: str) -> tuple[np.ndarray, str]:
    import torch

    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy(), dtype
    try:
        return tensor.numpy(), dtype
    except TypeError:  # float8 and other types that numpy lacks
        raise InputError(
            f"{source} holds {dtype} values; embeddings are bfloat16, float16, float32 or float64"
        ) from None
