"""Mean and scatter of hidden states, as cheap as training allows: what IsoScore* needs of a batch."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from clip_geometry.geometry.statistics.moments import Moments

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
