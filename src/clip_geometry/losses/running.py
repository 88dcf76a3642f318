"""The covariance that IsoScore* shrinks towards: of a sample, or averaged over batches."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.losses.hidden import Hidden, Layers
from clip_geometry.losses.second_moments import second_moments
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import real_number

Batch = Hidden | tuple[Hidden, Tensor] | list[Any]  # hidden states, or these and their mask


class RunningCovariance(nn.Module):
    """C_0, a buffer (d, d) that is None before the first sample or batch.

    It is kept in float64 whatever precision the model is converted to, moves to its device, and is in its state_dict.

    Args:
        momentum: weight of each new batch in the average; None if only `refresh` sets C_0.
    """

    covariance: Tensor | None

    def __init__(self, momentum: float | None = None):
        super().__init__()
        share = "the weight of a new batch, above 0 and at most 1"
        if momentum is not None:
            momentum = real_number(momentum, "momentum", lambda part: 0 < part <= 1, share)
        self.momentum = momentum
        self.register_buffer("covariance", None)

    @torch.no_grad()
    def refresh(self, sample: Tensor | Iterable[Batch], mask: Tensor | None = None, *, group: Any = None) -> None:
        """Sets C_0 to the covariance of a sample; its batches are merged, so that only one is in memory.

        Args:
            sample: rows (n, d) or (b, t, d), or an iterable of batches: hidden states, or these in a tuple (or list)
                with their mask.
            mask: of a tensor.
            group: as in `reduced`.

        Raises:
            InputError: for fewer than two rows in all and for entries that are not finite; C_0 is not changed.
        """
        try:
            batches = [(sample, mask)] if isinstance(sample, Tensor) else map(_with_mask, sample)
        except TypeError:  # it is not iterable
            batches = None
        if batches is None or (mask is not None and not isinstance(sample, Tensor)):
            raise InputError(
                f"the sample is a {type(sample).__name__}; expected a tensor, or batches without a mask beside them, "
                "each with its own: (states, mask)"
            )
        merged: Moments | None = None
        for hidden, kept in batches:
            layers = Layers(hidden, kept)
            part = second_moments(layers.rows, layers.kept)
            merged = part if merged is None else merged.merged(part)
        if merged is None:
            raise InputError("there are no batches to take the covariance of; expected at least one")
        merged = reduced(merged, group)
        if merged.n < 2:
            raise InputError("the sample has 1 row; expected at least 2, better more than dimensions")
        found = merged.covariance
        if not found.isfinite().all():
            raise InputError("the sample has entries that are not finite, or too large to be squared; leave them out")
        self.covariance = found

    @torch.no_grad()
    def update(self, moments: Moments) -> None:
        """With momentum m, C_0 becomes (1 − m) C_0 + m C, C the batch's covariance about its own mean.

        Not changed if C is not finite: a half-precision step that overflows is skipped, and C_0 would be lost.
        """
        if self.momentum is None:
            return
        before, now = self.like(moments), moments.covariance.detach()
        if now.isfinite().all():
            self.covariance = now.clone() if before is None else before.lerp(now, self.momentum)

    def like(self, moments: Moments) -> Float[Tensor, "d d"] | None:
        """C_0 on the device of the moments. Raises InputError for another dimension."""
        found = self.covariance
        if found is not None:
            if len(found) != moments.d:
                raise InputError(f"C_0 has dimension {len(found)}, the hidden states {moments.d}; refresh it with such")
            self.covariance = found = found.to(moments.M2)
        return found

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RunningCovariance":
        """Moves C_0 to another device, but never to another precision: float16 would leave three digits of it."""
        super()._apply(lambda tensor: tensor.to(fn(tensor.float()).device), recurse)
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any, **options: Any) -> None:
        """Accepts a C_0 of any shape: its dimension is known only with the first."""
        found = state_dict.get(f"{prefix}covariance")
        here = found if self.covariance is None else self.covariance
        self.covariance = None if found is None or here is None else torch.empty_like(found, device=here.device)
        super()._load_from_state_dict(state_dict, prefix, *rest, **options)


def reduced(moments: Moments, group: Any = None) -> Moments:
    """Moments of all processes of a torch.distributed group (None for all), if several train together."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size(group) > 1:
        return moments.all_reduce(group)
    return moments


def _with_mask(batch: Batch) -> tuple[Hidden, Tensor | None]:
    """A pair is hidden states with a mask, rather than two layers, if its second entry can only be a mask."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        hidden, mask = batch
        first = hidden[0] if isinstance(hidden, tuple | list) and hidden else hidden
        if mask is None or (
            isinstance(mask, Tensor)
            and (not mask.is_floating_point() or mask.shape == getattr(first, "shape", ())[:-1])
        ):
            return hidden, mask
    return batch, None  # pyright: ignore[reportReturnType]
