"""PyTorch, .pt: what torch.save wrote. Nothing that is pickled beside tensors and plain values is loaded."""

from pathlib import Path

from clip_geometry.io.format import Sides
from clip_geometry.io.reading import read_checkpoint
from clip_geometry.io.safetensors import sides_of_tensors
from clip_geometry.io.sides import UNNAMED
from clip_geometry.registry import InputError, shown


def read(path: Path) -> Sides:
    """Read one tensor of no modality, or a dict of tensors like those of .safetensors."""
    import torch

    found = read_checkpoint(path, "a file of embeddings", mmap=True)
    tensors = {UNNAMED: found} if isinstance(found, torch.Tensor) else found
    if not isinstance(tensors, dict) or not all(isinstance(each, torch.Tensor) for each in tensors.values()):
        raise InputError(
            f"{shown(path)} holds a {type(found).__name__}; expected a tensor, or a dict of tensors by name"
        )
    return sides_of_tensors({str(name): tensor for name, tensor in tensors.items()}, path)
