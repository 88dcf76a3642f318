"""Which rows are copies of others: n log n instead of all pairs."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import squared_distances_of_pairs
from clip_geometry.rows.matrix import Matrix, blocks, in_one_piece

SAME_DIRECTION = 1e-13  # unit rows of equal direction differ by their last digits


@torch.no_grad()
def distinct_rows(x: Float[Matrix, "n d"], *, tolerance: float = 0.0) -> Bool[Tensor, " n"]:
    """Marks one of each group of rows whose Euclidean distance is at most `tolerance`, and all other rows.

    Rows that are near have near projections on any line, so that in the order of the projections only runs need be
    compared. tolerance: 0, or so small that groups do not touch.
    """
    keys, slack = _projections(x, tolerance)
    kept = torch.ones(len(x), dtype=torch.bool, device=x.device)
    order = keys.argsort(stable=True)
    step = 1
    while step < len(order):
        i, j = order[:-step], order[step:]
        close = keys[j] - keys[i] <= slack[i]
        if not close.any():  # nor are rows farther apart in the order
            break
        i, j = i[close], j[close]
        copies = j[squared_distances_of_pairs(x, x, i, j) <= tolerance**2]
        kept[copies] = False
        order = order[kept[order]]
        step = 1 if len(copies) > 0 else step + 1
    return kept


def _projections(x: Float[Matrix, "n d"], tolerance: float) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Products with one fixed vector, and how far apart those of equal rows can be, rounding included."""
    d = x.shape[1]
    line = torch.randn(d, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(x.device)
    keys = in_one_piece((block @ line for block in blocks(x)), len(x))
    lengths = in_one_piece((block.norm(dim=1) for block in blocks(x)), len(x))
    rounding = 2 * (d + 4) * torch.finfo(torch.float64).eps * lengths
    return keys, (tolerance + rounding) * line.norm()
