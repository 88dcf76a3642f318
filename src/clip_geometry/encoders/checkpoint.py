"""Weights from files: tensors only, never code; checked against the model before they are copied."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from clip_geometry.io.reading import first_line, read_checkpoint, read_safetensors
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
