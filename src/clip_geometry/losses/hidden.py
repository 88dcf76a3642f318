"""Hidden states as training loops have them: rows, a batch of token sequences, or all layers of one."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.registry import InputError

Hidden: TypeAlias = Tensor | Sequence[Tensor]  # (n, d), (b, t, d), or several of either, one for each layer


def is_finite(value: Any) -> bool:
    """Whether it is a number, and a finite one."""
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, RuntimeError):  # of a string, an array, a tensor of several
        return False


def require_weight(lambda_: Any) -> None:
    """Raises InputError for what is no finite number."""
    if not is_finite(lambda_):
        raise InputError(f"lambda_ is {lambda_!r}; expected a finite weight of the penalty")


class Layers:
    """The rows of all layers, one list; kept: indices of those that count, the same in each layer, None: all.

    Raises InputError for shapes that do not fit, and where the mask leaves no row.
    """

    def __init__(self, hidden: Hidden, mask: Tensor | None = None):
        given = [hidden] if isinstance(hidden, Tensor) else list(hidden)
        _check(given)
        self.rows: list[Float[Tensor, "n d"]] = [layer.reshape(-1, layer.shape[-1]) for layer in given]
        self.kept = None if mask is None else _indices(mask, given[0])

    @property
    def n(self) -> int:
        """Rows of all layers together."""
        return len(self.rows) * (len(self.rows[0]) if self.kept is None else len(self.kept))

    def together(self) -> Float[Tensor, "n d"]:
        """Those that count, of all layers, in one matrix."""
        return torch.cat([rows if self.kept is None else rows.index_select(0, self.kept) for rows in self.rows])


def _check(layers: Sequence[Any]) -> None:
    if not layers:
        raise InputError("there are no hidden states; expected a tensor (n, d) or (b, t, d), or one for each layer")
    for layer in layers:
        if not isinstance(layer, Tensor):
            raise InputError(f"hidden states are a {type(layer).__name__}; expected a tensor, or one for each layer")
        if layer.ndim not in (2, 3) or not layer.is_floating_point():
            kind = str(layer.dtype).removeprefix("torch.")
            raise InputError(
                f"hidden states are {kind} of shape {tuple(layer.shape)}; expected floating point, (n, d) or (b, t, d)"
            )
        if layer.shape != layers[0].shape:
            shapes = f"{tuple(layers[0].shape)} and {tuple(layer.shape)}"
            raise InputError(f"layers have shapes {shapes}; expected one shape")
    if layers[0].numel() == 0:
        raise InputError(f"hidden states have shape {tuple(layers[0].shape)}; expected at least one row")


def _indices(mask: Tensor, layer: Tensor) -> Int[Tensor, " k"] | None:
    """None where the mask leaves out nothing, so that nothing is copied."""
    if mask.shape != layer.shape[:-1] or mask.is_floating_point():
        raise InputError(
            f"the mask is {str(mask.dtype).removeprefix('torch.')} of shape {tuple(mask.shape)}; expected "
            f"{tuple(layer.shape[:-1])}, true (or 1) for each row that is no padding"
        )
    indices = mask.to(layer.device).reshape(-1).nonzero().squeeze(1)
    if len(indices) == 0:
        raise InputError(f"the mask leaves none of {mask.numel()} rows; a batch of padding alone has no geometry")
    return None if len(indices) == mask.numel() else indices
