"""Which rows to take from each class: as many as are asked for, at random, spread over the classes."""

import torch
from jaxtyping import Int
from torch import Tensor


def random_ranks(codes: Int[Tensor, " n"], generator: torch.Generator) -> Int[Tensor, " n"]:
    """The place of each row, from 0, in a random order of its class; the lowest m are a random sample of m."""
    order = torch.randperm(len(codes), generator=generator)
    order = order[codes[order].argsort(stable=True)]
    sizes = torch.bincount(codes)
    starts = (sizes.cumsum(0) - sizes)[codes[order]]
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(codes)) - starts)


def strata(sizes: Int[Tensor, " k"], of: int) -> Int[Tensor, " k"]:
    """The stratum of each class, 0 …: large classes are one each, small ones share one, so that of `of` rows, dealt in
    proportion, two or more fall to every stratum."""
    least = 2 * int(sizes.sum()) / of
    stratum, last, filled = torch.empty_like(sizes), 0, 0
    for c in sizes.argsort(descending=True, stable=True).tolist():
        if filled >= least:
            last, filled = last + 1, 0
        stratum[c] = last
        filled += int(sizes[c])
    if filled < least and last > 0:  # too few are left for one of their own
        stratum[stratum == last] = last - 1
    return stratum


def in_proportion(sizes: Int[Tensor, " s"], of: int) -> Int[Tensor, " s"]:
    """`of` rows dealt to strata of these sizes in proportion, the largest remainders rounded up."""
    shares = sizes.double() * of / sizes.sum()
    dealt = shares.floor().long()
    dealt[(shares - dealt).argsort(descending=True, stable=True)[: of - int(dealt.sum())]] += 1
    return dealt
