"""The best scores of queries in a search that reads the items block by block."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class BestScores:
    """The k best scores of each query, updated block by block.

    Attributes:
        scores: (q, k) best scores so far, descending; −inf where there are fewer items.
        items: (q, k) numbers of the items that have them.
    """

    def __init__(self, queries: int, k: int):
        self.scores = torch.full((queries, k), -torch.inf)
        self.items = torch.zeros(queries, k, dtype=torch.long)

    def add(self, scores: Float[Tensor, "q b"], items: Int[Tensor, " b"]) -> None:
        """Add the scores of further items."""
        k = self.scores.shape[1]
        rows = (scores.amax(1) > self.scores[:, -1]).nonzero().squeeze(1)  # fewer and fewer, block after block
        highest, order = scores[rows].topk(min(k, scores.shape[1]), dim=1)
        self.scores[rows], order_of_both = torch.cat([self.scores[rows], highest], dim=1).topk(k, dim=1)
        self.items[rows] = torch.cat([self.items[rows], items[order]], dim=1).gather(1, order_of_both)
