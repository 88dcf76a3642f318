"""The best scores of queries in a search that reads the items block by block."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

GROUP = 8  # columns per group whose best value is computed before the best values are selected


class BestScores:
    """The k highest scores of each query, or the k lowest, updated block by block.

    Attributes:
        scores: (q, k) best scores so far, in no particular order; ∓inf where there are fewer items.
        items: (q, k) numbers of the items that have them.
    """

    def __init__(
        self,
        queries: int,
        k: int,
        *,
        lowest: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ):
        worst = torch.inf if lowest else -torch.inf
        self.lowest = lowest
        self.scores = torch.full((queries, k), worst, dtype=dtype, device=device)
        self.items = torch.zeros(queries, k, dtype=torch.long, device=device)

    def add(self, scores: Float[Tensor, "q b"], items: Int[Tensor, " b"], queries: slice = slice(None)) -> None:
        """Add the scores of further items, for all queries or some of them."""
        k = self.scores.shape[1]
        best, columns = best_of(scores, k, lowest=self.lowest)
        of_both = torch.cat([self.items[queries], items[columns]], dim=1)
        both = torch.cat([self.scores[queries], best], dim=1)
        self.scores[queries], order = both.topk(k, dim=1, largest=not self.lowest, sorted=False)
        self.items[queries] = of_both.gather(1, order)

    def in_order(self) -> tuple[Float[Tensor, "q k"], Int[Tensor, "q k"]]:
        """Return the scores, best first, and the numbers of their items; equal scores are in the order of the items."""
        items, order = self.items.sort(dim=1)
        scores, best_first = self.scores.gather(1, order).sort(dim=1, descending=not self.lowest, stable=True)
        return scores, items.gather(1, best_first)


def best_of(
    values: Float[Tensor, "b c"], count: int, *, lowest: bool = False
) -> tuple[Float[Tensor, "b k"], Int[Tensor, "b k"]]:
    """Return the `count` highest or lowest values of each row and their columns, in no particular order.

    They lie in the `count` groups of columns with the best extremes, or in the columns left over. These groups are
    found faster than the values themselves, by applying the function recursively to the extremes.
    """
    groups = values.shape[1] // GROUP
    if groups < 2 * count:
        return values.topk(min(count, values.shape[1]), dim=1, largest=not lowest, sorted=False)
    extreme = torch.amin if lowest else torch.amax
    whole = values[:, : groups * GROUP]
    if values.stride(0) == 1:  # the values are columns of a block; write the result in their memory order
        extremes = extreme(whole.T.unflatten(0, (GROUP, groups)), 0).T
    else:
        extremes = extreme(whole.unflatten(1, (GROUP, groups)), 1)
    _, near = best_of(extremes, count, lowest=lowest)
    members = groups * torch.arange(GROUP, device=values.device)
    columns = (near[:, :, None] + members).flatten(1)
    rest = torch.arange(groups * GROUP, values.shape[1], device=values.device).expand(len(values), -1)
    columns = torch.cat((columns, rest), dim=1)
    best, selected = values.gather(1, columns).topk(count, dim=1, largest=not lowest, sorted=False)
    return best, columns.gather(1, selected)
