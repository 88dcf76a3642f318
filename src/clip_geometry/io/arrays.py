"""Files of arrays by name: .npz, .safetensors and .pt.

Pickled objects are never loaded; bfloat16 becomes float32, exactly.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.io import reading
from clip_geometry.io.format import Sides, register
from clip_geometry.io.sides import UNNAMED, sides_of_arrays
from clip_geometry.registry import InputError, shown


def read_npz(path: Path) -> Sides:
    """Read the arrays of rows by modality ("image", "text_emb", …), or a single one of any name; and "labels"."""
    return sides_of_arrays(reading.read_npz(path), path)


def read_safetensors(path: Path) -> Sides:
    """Read the tensors of rows by modality ("image", "text_emb", …), or a single one of any name; and "labels"."""
    return _from_tensors(reading.read_safetensors(path, framework="pt")[1], path)


def read_pt(path: Path) -> Sides:
    """Read what torch.save wrote: one tensor of no modality, or a dict of tensors like those of .safetensors."""
    import torch

    found = reading.read_checkpoint(path, "a file of embeddings", mmap=True)
    tensors = {UNNAMED: found} if isinstance(found, torch.Tensor) else found
    if not isinstance(tensors, dict) or not all(isinstance(each, torch.Tensor) for each in tensors.values()):
        raise InputError(
            f"{shown(path)} holds a {type(found).__name__}; expected a tensor, or a dict of tensors by name"
        )
    return _from_tensors({str(name): tensor for name, tensor in tensors.items()}, path)


def _from_tensors(tensors: Mapping[str, Any], path: Path) -> Sides:
    import torch

    arrays: dict[str, np.ndarray] = {}
    dtypes = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        try:
            tensor = tensor.detach()
            arrays[name] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
        except (TypeError, RuntimeError):  # float8 and other types that numpy lacks
            raise InputError(
                f"{shown(path)}, tensor {shown(name)}, holds {dtypes[name]} values; embeddings are bfloat16, float16, "
                "float32 or float64"
            ) from None
    return sides_of_arrays(arrays, path, dtypes)


for name, read in (("npz", read_npz), ("safetensors", read_safetensors), ("pt", read_pt)):
    register(name, read)
