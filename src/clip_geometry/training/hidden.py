"""Hidden states as training loops have them: rows, a batch of token sequences, or all layers of a batch."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import FLOATS, real_number

Hidden: TypeAlias = Tensor | Sequence[Tensor]  # (n, d), (b, t, d), or several of either, one for each layer


def weight(lambda_: Any) -> float:
    """λ as a finite float. Raises InputError for anything else."""
    return real_number(lambda_, "lambda_", math.isfinite, "a finite weight of the penalty")


class Layers:
    """The rows of all layers (`rows`), and the indices of those that count (`kept`), the same in each layer, None for
    all. Raises InputError for shapes that do not fit, and if the mask leaves no row."""

    def __init__(self, hidden: Hidden, mask: Tensor | None = None):
        given = [hidden] if isinstance(hidden, Tensor) else hidden
        if not isinstance(given, list | tuple):
            raise InputError(f"hidden states are a {type(hidden).__name__}; expected a tensor, or one for each layer")
        _check(given)
        self.rows: list[Float[Tensor, "n d"]] = [layer.reshape(-1, layer.shape[-1]) for layer in given]
        self.kept = None if mask is None else _indices(mask, given[0])

    def together(self) -> Float[Tensor, "n d"]:
        """The rows that count, of all layers, in one matrix."""
        return torch.cat([rows if self.kept is None else rows.index_select(0, self.kept) for rows in self.rows])


def _check(layers: Sequence[Any]) -> None:
    if not layers:
        raise InputError("there are no hidden states; expected a tensor (n, d) or (b, t, d), or one for each layer")
    first = layers[0]
    for layer in layers:
        if not isinstance(layer, Tensor):
            raise InputError(f"hidden states are a {type(layer).__name__}; expected a tensor, or one for each layer")
        sparse = layer.layout != torch.strided or layer.is_nested or layer.is_quantized
        if sparse or layer.is_meta or hasattr(layer, "get_mask"):
            raise InputError("hidden states are a sparse, quantized, masked or meta tensor; expected a dense one")
        if layer.ndim not in (2, 3) or layer.dtype not in FLOATS:
            raise InputError(f"hidden states are {_described(layer)}; expected floating point, (n, d) or (b, t, d)")
        if layer.shape != first.shape or layer.device != first.device:
            given = f"{tuple(first.shape)} on {first.device} and {tuple(layer.shape)} on {layer.device}"
            raise InputError(f"layers are {given}; expected one shape and one device")
    if first.numel() == 0:
        raise InputError(f"hidden states have shape {tuple(first.shape)}; expected at least one row")


def _indices(mask: Tensor, layer: Tensor) -> Int[Tensor, " k"] | None:
    """None if the mask leaves out nothing, so that nothing is copied."""
    if not isinstance(mask, Tensor) or mask.layout != torch.strided:
        raise InputError(f"the mask is {shown(mask)}; expected a tensor, true (or 1) for each row that is no padding")
    if mask.shape != layer.shape[:-1] or mask.is_floating_point() or mask.is_complex():
        expected = f"{tuple(layer.shape[:-1])}, true (or 1) for each row that is no padding"
        raise InputError(f"the mask is {_described(mask)}; expected {expected}")
    indices = mask.to(layer.device).reshape(-1).nonzero().squeeze(1)
    if len(indices) == 0:
        raise InputError(f"the mask leaves none of {mask.numel()} rows; a batch of padding alone has no geometry")
    return None if len(indices) == mask.numel() else indices


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
