"""State dicts from files: tensors only, never code; checked against the model before they go in."""

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from clip_geometry.files import existing_file
from clip_geometry.registry import InputError


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Tensors by name from .safetensors, or from a pickle that holds tensors only (weights_only).

    A training checkpoint ({"state_dict": …, …}) and names prefixed by DistributedDataParallel are unwrapped.
    """
    values = _read(existing_file(path, "a checkpoint file"))
    if isinstance(values, Mapping) and isinstance(values.get("state_dict"), Mapping):
        values = values["state_dict"]
    if not isinstance(values, Mapping) or not all(isinstance(value, Tensor) for value in values.values()):
        raise InputError(f"{path} holds no state dict: a mapping from parameter names to tensors was expected")
    if values and all(name.startswith("module.") for name in values):
        return {name.removeprefix("module."): value for name, value in values.items()}
    return dict(values)


def _read(path: Path):
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path} is not a readable safetensors file ({error})") from None
    try:
        with warnings.catch_warnings():
            for message in ("Detected pickle protocol", ".*TorchScript archive"):  # if it matters, an error follows
                warnings.filterwarnings("ignore", message=message)
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError):
        raise InputError(
            f"{path} cannot be read as a checkpoint of tensors: it is damaged, no PyTorch file, a TorchScript archive, "
            "or pickles other objects, which is refused; save the model's state_dict() as .safetensors or .pt"
        ) from None


def load_state_dict(model: nn.Module, state: Mapping[str, Tensor], origin: str) -> None:
    """Copies `state` into `model`; InputError on the first name or shape that does not fit."""
    expected = model.state_dict()
    # a buffer that older versions of transformers saved, always 0, 1, 2, …
    given = {n: v for n, v in state.items() if n in expected or not n.endswith("embeddings.position_ids")}
    missing = [name for name in expected if name not in given]
    extra = [name for name in given if name not in expected]
    if missing or extra:
        what = "lacks" if missing else "has, but the model has not,"
        names = missing or extra
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise InputError(f"{origin} does not fit the architecture: the file {what} {names[0]!r}{more}")
    for name, value in given.items():
        if value.shape != expected[name].shape:
            raise InputError(
                f"{origin} does not fit the architecture: {name!r} has shape {tuple(value.shape)} in the file, "
                f"{tuple(expected[name].shape)} in the model"
            )
    model.load_state_dict(given)
