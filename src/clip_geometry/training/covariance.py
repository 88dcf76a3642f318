"""What IsoScore* needs of hidden states: mean and scatter of a batch, and the covariance that it shrinks towards."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clip_geometry.geometry import Moments
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import real_number
from clip_geometry.training.hidden import Hidden, Layers

Batch = Hidden | tuple[Hidden, Tensor] | list[Any]  # hidden states, or these and their mask
BLOCK = 2048  # rows that are centered, summed and multiplied while they are in the cache
STRIP = 64  # columns multiplied at once: narrower ones save more of the symmetric half, but are slower


def second_moments(layers: Sequence[Float[Tensor, "n d"]], kept: Int[Tensor, " k"] | None = None) -> Moments:
    """n, mean and M2 of the rows of all layers together; T and Q, which nothing here needs, are zero.

    kept: indices of the rows that count, the same in each layer; None for all. Products are in float32 (float64 for
    float64 rows) whatever autocast says; n, mean and M2 are float64 (float32 on devices without it). Each row is
    centered before it is multiplied, for the gradient too, so that a mean far from the origin costs no digits. Once
    differentiable in the rows: the gradient needs one product with a (d, d) matrix and no copy of them.
    """
    rows = len(layers[0]) if kept is None else len(kept)
    mean, m2 = _SecondMoments.apply(kept, *layers)  # pyright: ignore[reportGeneralTypeIssues]
    return Moments(rows * len(layers), mean, m2, torch.zeros_like(mean), mean.new_zeros(()))


def widest(device: torch.device) -> torch.dtype:
    """Precision of the sums."""
    return torch.float32 if device.type == "mps" else torch.float64


class _SecondMoments(torch.autograd.Function):
    """With G the gradient for M2 = Σ c cᵀ and g that for the mean, a row's gradient is (G + Gᵀ) c + g/n."""

    @staticmethod
    def forward(ctx: Any, kept: Tensor | None, *layers: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(layers[0].device.type, enabled=False):
            mean, m2, n = _mean_and_scatter(layers, kept)
        ctx.save_for_backward(mean, *([] if kept is None else [kept]), *layers)
        ctx.n, ctx.masked = n, kept is not None
        return mean, m2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        g, G = gradients
        mean, *layers = ctx.saved_tensors
        kept = layers.pop(0) if ctx.masked else None
        with torch.autocast(mean.device.type, enabled=False):
            centre, slope = mean.to(_products(layers[0])), G + G.T
            offset = g / ctx.n + slope @ (centre - mean)  # what rounding the mean to the rows' precision misses
            needed = zip(layers, ctx.needs_input_grad[1:], strict=True)
            return None, *(_gradient(rows, kept, centre, slope, offset) if need else None for rows, need in needed)


def _mean_and_scatter(layers: Sequence[Tensor], kept: Tensor | None) -> tuple[Tensor, Tensor, int]:
    """About a center near the mean, then corrected: M2 = Σ (x − c)(x − c)ᵀ − n δδᵀ, δ = mean − c."""
    kind, exact = _products(layers[0]), widest(layers[0].device)
    # of the first blocks is near enough: rounding grows with δ²/σ², which is below n divided by their rows
    centre = torch.stack([next(_blocks(rows, kept)).to(kind).mean(0) for rows in layers]).mean(0)
    n, d = 0, len(centre)
    sums = centre.new_zeros(d, dtype=exact)
    scatter = centre.new_zeros((d, d), dtype=exact)
    for rows in layers:
        gram = centre.new_zeros((d, d))
        for block in _blocks(rows, kept):
            block = block.to(kind) - centre
            n += len(block)
            sums += block.sum(0)
            # without the strips below its diagonal, since it is symmetric: 7 of 12 strips at d = 384
            for start in range(0, len(gram), STRIP):
                gram[start : start + STRIP, start:].addmm_(block[:, start : start + STRIP].T, block[:, start:])
        scatter += gram
    scatter = scatter.triu() + scatter.triu(1).T
    shift = sums / n
    return centre + shift, scatter - n * torch.outer(shift, shift), n


def _blocks(rows: Tensor, kept: Tensor | None) -> Iterator[Tensor]:
    """The rows that count, a block at a time."""
    if kept is None:
        return iter(rows.split(BLOCK))
    return (rows.index_select(0, part) for part in kept.split(BLOCK))


def _gradient(rows: Tensor, kept: Tensor | None, centre: Tensor, slope: Tensor, offset: Tensor) -> Tensor:
    """(x − center) slope + offset, and 0 for rows that do not count."""
    slope, offset = slope.to(centre), offset.to(centre)
    if kept is None:
        found = torch.empty_like(rows)
        for part, block in zip(found.split(BLOCK), rows.split(BLOCK), strict=True):
            block = block.to(centre) - centre
            if part.dtype == block.dtype:
                torch.addmm(offset, block, slope, out=part)
            else:
                part.copy_(torch.addmm(offset, block, slope))
        return found
    found = torch.zeros_like(rows)
    for part, block in zip(kept.split(BLOCK), _blocks(rows, kept), strict=True):
        found.index_copy_(0, part, torch.addmm(offset, block.to(centre) - centre, slope).to(rows.dtype))
    return found


def _products(rows: Tensor) -> torch.dtype:
    return torch.float64 if rows.dtype == torch.float64 else torch.float32


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
        alone = isinstance(sample, Tensor)
        if not isinstance(sample, Iterable) or (mask is not None and not alone):
            raise InputError(
                f"the sample is a {type(sample).__name__}; expected a tensor, or batches without a mask beside them, "
                "each with its own: (states, mask)"
            )
        merged: Moments | None = None
        for hidden, kept in [(sample, mask)] if alone else map(_with_mask, sample):
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
