"""safetensors: tensors by name. bfloat16 becomes float32, exactly."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.io.format import Sides
from clip_geometry.io.reading import read_safetensors
from clip_geometry.io.sides import sides_of_arrays
from clip_geometry.registry import InputError, shown


def read(path: Path) -> Sides:
    """Read the tensors of rows by modality ("image", "text_emb", …), or a single one of any name; and "labels"."""
    return sides_of_tensors(read_safetensors(path, framework="pt")[1], path)


def sides_of_tensors(tensors: Mapping[str, Any], path: Path) -> Sides:
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
