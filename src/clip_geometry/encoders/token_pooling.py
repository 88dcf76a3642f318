"""One row per text from one vector per token. mask: 1 for tokens, 0 for padding, on whichever side."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Pooling = Callable[[Tensor, Tensor], Tensor]  # hidden (n, t, d), mask (n, t) → rows (n, d or a multiple)


def mean_pooling(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean over the tokens, summed in float32 whatever the precision of the model."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1, dtype=torch.float32) / weights.sum(dim=1, dtype=torch.float32)


def cls_pooling(hidden: Tensor, mask: Tensor) -> Tensor:
    """The first token, which is not in the first place where padding is on the left."""
    first = mask.int().argmax(dim=1)
    return hidden[torch.arange(len(hidden), device=hidden.device), first]


def max_pooling(hidden: Tensor, mask: Tensor) -> Tensor:
    """Each coordinate's maximum over the tokens."""
    return hidden.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(dim=1)


POOLINGS: dict[str, Pooling] = {"cls": cls_pooling, "max": max_pooling, "mean": mean_pooling}


def joined(names: Sequence[str]) -> Pooling:
    """Several poolings beside one another: rows of d · len(names) columns, in the order of the names."""

    def pool(hidden: Tensor, mask: Tensor) -> Tensor:
        return torch.cat([POOLINGS[name](hidden, mask).to(hidden.dtype) for name in names], dim=-1)

    return pool if len(names) > 1 else POOLINGS[names[0]]
