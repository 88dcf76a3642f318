"""Files of arrays or tensors: .npy, .npz, .safetensors and .pt. Pickled objects are never loaded."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from clip_geometry.embeddings import Embeddings
from clip_geometry.files import write_atomically, writing
from clip_geometry.io import reading
from clip_geometry.io.export import blocks, dtype_of
from clip_geometry.io.sides import UNNAMED, Provenance, Sides, check_vectors, sides_of_arrays, sides_of_columns
from clip_geometry.registry import InputError, shown


class _Origin(BaseModel):
    """The content of PATH.json beside a .npy file, which has no place for metadata."""

    clip_geometry: Provenance = {}  # stays empty for another program's file of that name


def read_npy(path: Path) -> Sides:
    """Read one array, of unknown modality, and the provenance that `write_npy` wrote beside it, if any."""
    vectors = check_vectors(reading.read_npy(path), shown(path))
    origin = _origin_path(path)
    provenance = reading.read_json(origin, "the origin of rows", _Origin).clip_geometry if origin.is_file() else {}
    return sides_of_columns({UNNAMED: vectors}, {}, path, provenance=provenance)


def write_npy(embeddings: Embeddings, path: Path) -> None:
    """Write the rows in blocks, and their provenance to a .json file beside them."""
    header = {"descr": dtype_of(embeddings).str, "fortran_order": False, "shape": (len(embeddings), embeddings.dim)}
    with writing(path) as file:
        np.lib.format.write_array_header_1_0(file, header)  # pyright: ignore[reportArgumentType]
        for block in blocks(embeddings, finite=False):
            file.write(block.tobytes())
    origin = {"clip_geometry": dict(embeddings.provenance)}
    write_atomically(_origin_path(path), f"{json.dumps(origin, indent=1, default=str)}\n".encode())


def _origin_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def read_npz(path: Path) -> Sides:
    """Read arrays named by modality ("image", "text_emb", …), or a single array of any name, and "labels"."""
    return sides_of_arrays(reading.read_npz(path), path)


def read_tensors(path: Path) -> Sides:
    """Read the tensors of a .safetensors or .pt file by modality, as for .npz, or the only tensor of a .pt file.

    bfloat16 is converted to float32, without loss.
    """
    import torch

    if path.suffix.lower() == ".safetensors":
        content: Any = reading.read_safetensors(path, framework="pt")[1]
    else:
        content = reading.read_checkpoint(path, "a file of embeddings", mmap=True)
    tensors = {UNNAMED: content} if isinstance(content, torch.Tensor) else content
    if not isinstance(tensors, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise InputError(
            f"{shown(path)} holds a {type(content).__name__}; expected a tensor, or a dict of tensors by name"
        )
    arrays: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        try:
            arrays[str(name)] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().numpy()
        except (TypeError, RuntimeError):  # float8 and other types that NumPy lacks
            raise InputError(
                f"{shown(path)}, tensor {shown(name)}, holds {tensor.dtype} values; embeddings are bfloat16, float16, "
                "float32 or float64"
            ) from None
    return sides_of_arrays(arrays, path)
