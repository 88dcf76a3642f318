"""Rows as the kernel of fused_distances multiplies them: about a centre, scaled, in the precision of the products."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

TYPICAL = 8  # binary exponent of a typical entry, scaled: far from both ends of float16
LARGEST = 2.0**15  # entries beyond leave float16; distances to such rows are taken from differences
LEAST = 2.0**-6  # of d: squares of distances to which float16 leaves few digits; differences are taken as well
SAMPLE = 9  # rows of a class whose median is its centre: near most rows, however far away some are
PART = 2**16  # rows prepared at a time


class Form(NamedTuple):
    """How rows are multiplied: in which type, as a sum of two parts or not, and how float32 products are taken."""

    dtype: torch.dtype
    split: bool = False
    precision: str = "ieee"


FORMS = {
    "fp16x3": Form(torch.float16, split=True),  # twice 11 bits; of their four products the smallest is left out
    "tf32x3": Form(torch.float32, precision="tf32x3"),
    "ieee": Form(torch.float32),
    "tf32": Form(torch.float32, precision="tf32"),
    "fp16": Form(torch.float16),
    "bf16": Form(torch.bfloat16),
}


class Operands(NamedTuple):
    """What is multiplied, padded with zeros, and in which unit: a distance 1 between rows is `scale` there."""

    high: Float[Tensor, "m e"]
    low: Float[Tensor, "m e"]  # what `high` leaves; the same as high where rows are not split
    norms: Float[Tensor, " m"]
    scale: Float[Tensor, " m"]


def operands(
    rows: Float[Tensor, "n d"],
    centres: Float[Tensor, "c d"],
    which: Int[Tensor, " n"],
    form: Form,
    shape: tuple[int, int],
    *,
    dtype: torch.dtype | None = None,
) -> Operands:
    """Of float32 rows. which: the centre of each. shape: with padding. dtype: to keep what was rounded in another."""
    d = rows.shape[1]
    parts = [slice(start, min(start + PART, len(rows))) for start in range(0, len(rows), PART)]
    lengths = torch.cat([(rows[part] - centres[which[part]]).double().norm(dim=1) for part in parts])
    scale = _scales(lengths / d**0.5, which, len(centres))
    high = rows.new_zeros(shape, dtype=dtype or form.dtype)
    low = torch.zeros_like(high) if form.split else high
    norms = rows.new_zeros(shape[0])
    for part in parts:
        scaled = (rows[part] - centres[which[part]]) * scale[part, None]
        fits = scaled.abs().amax(1) < LARGEST
        scaled = torch.where(fits[:, None], scaled, 0)
        if form.precision == "tf32":  # to its 11 bits, to which the tensor cores would cut off otherwise
            first = ((scaled.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
        else:
            first = scaled.to(form.dtype)
        high[part, :d] = first
        multiplied = first.double()
        if form.split:
            second = (scaled - first.float()).to(form.dtype)
            low[part, :d] = second
            multiplied += second.double()
        # of what is multiplied, not of the rows: rounding then moves the rows a little, and nothing cancels
        norms[part] = torch.where(fits, multiplied.square().sum(1).float(), torch.nan)
    return Operands(high, low, norms, torch.cat([scale, scale.new_ones(shape[0] - len(rows))]))


def class_centres(rows: Float[Tensor, "n d"], bounds: list[int]) -> Float[Tensor, "k d"]:
    """The median of some rows of each class, coordinate by coordinate; class c has bounds[c] … bounds[c + 1] − 1."""
    edges = torch.tensor(bounds, device=rows.device)
    sizes = edges.diff()[:, None]
    sample = edges[:-1, None] + (2 * torch.arange(SAMPLE, device=rows.device) + 1) * sizes // (2 * SAMPLE)
    parts = [rows[some.flatten()].view(len(some), SAMPLE, -1).median(1).values for some in sample.split(1024)]
    return torch.cat(parts)


def middle(centres: Float[Tensor, "k d"]) -> Float[Tensor, " d"]:
    """A point near most of the classes."""
    return centres[:: math.ceil(len(centres) / 1024)].median(0).values


def _scales(typical: Float[Tensor, " n"], which: Int[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
    """The power of two that brings the median row about each centre near 2^TYPICAL."""
    sizes = torch.bincount(which, minlength=k)
    order = typical.argsort()
    order = order[which[order].argsort(stable=True)]  # by centre, then by length
    medians = typical[order[sizes.cumsum(0) - sizes + sizes // 2]]
    exponents = torch.frexp(medians).exponent.clamp(min=-90)  # for units within float32
    return torch.ldexp(torch.ones_like(medians), TYPICAL - exponents).float()[which]
