"""Representational similarity analysis: do two sets rank the similarities of their pairs of rows alike?"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from clip_geometry.geometry._core.distances import squared_distances
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.left_out import LeftOut
from clip_geometry.geometry._core.rows import Rows, as_aligned, as_rows, mean_row, require_spread, unit_rows
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.memory import memory
from clip_geometry.registry import InputError

SAME = 1e-11  # relative difference of two squared distances, taken from products, that are equal
COPIES = 12  # of the distances of all pairs, in float64, at the same time


@in_kind
def rsa(x: Rows, y: Rows) -> Float[Tensor, ""]:
    """Representational similarity analysis: Spearman correlation of the cosines of all pairs of rows in two sets.

    ρ over i < j of cos(x_i, x_j) and cos(y_i, y_j), equal ones with their mean rank (Kriegeskorte et al. 2008, with
    cosines in place of correlations). In [−1, 1]: 1 where both sets order all pairs alike, 0 on average where they are
    independent. Without gradient, since ranks have none. O(n²(d + e) + n² log n), and memory for 12 numbers a pair.

    Args:
        x: Rows, (n, d), n ≥ 3, d ≥ 2.
        y: Rows, (n, e), aligned with x, e ≥ 2.

    Returns:
        The correlation, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, the numbers of rows differ, all cosines of a set are equal, n, d or e is too small,
            or the pairs do not fit into memory.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.rsa(image, image[:, :4]), 2), round(cg.rsa(image, text), 2)
        (0.59, -0.01)
    """
    x, y = as_aligned(x, y, ("image", "text"), least=3, one_space=False)
    orders = [_Order(each, name) for each, name in ((x, "image"), (y, "text"))]
    return _correlation(*(order.ranks() for order in orders))


class _Order:
    """The order of the pairs of rows by distance of the unit rows, of which those of some pairs follow."""

    def __init__(self, rows: Tensor, name: str):
        rows = unit_rows(as_rows(rows, name=name, least_d=2), name=name).detach()
        n, self.name = len(rows), name
        if 4 * COPIES * n**2 > memory():
            raise InputError(f"the {n * (n - 1) // 2} pairs of {n} rows do not fit into memory; take a sample of rows")
        require_spread(rows, name=name)
        i, j = torch.triu_indices(n, n, offset=1, device=rows.device)
        values, self.order = squared_distances(rows, rows, centre=mean_row(rows))[i, j].sort()
        self.group = torch.cat([values.new_zeros(1), (values.diff() > SAME * values[1:]).double()]).cumsum(0).long()

    def ranks(self, kept: Bool[Tensor, " p"] | None = None) -> Float[Tensor, " p"]:
        """Mean ranks among all pairs or those kept, less their mean; 0 for all others, in the order of the pairs."""
        order, group = self.order, self.group
        if kept is not None:
            inside = kept[order].nonzero()[:, 0]
            order, group = order[inside], group[inside]
        counts = torch.bincount(group)
        if group[0] == group[-1]:
            raise InputError(f"all cosines of {self.name} are equal, which have no order; rsa is 0/0 there")
        mean_rank = counts.cumsum(0).double() - (counts - 1) / 2
        placed = mean_rank.new_zeros(len(self.order))
        placed[order] = mean_rank[group] - (len(order) + 1) / 2
        return placed


def _correlation(a: Float[Tensor, " q"], b: Float[Tensor, " q"]) -> Float[Tensor, ""]:
    return ((a @ b) / (a.norm() * b.norm())).clamp(-1, 1)


def _left_out(x: LeftOut, y: LeftOut) -> Iterator[Tensor]:
    """rsa without each block, from one order of all pairs."""
    orders = [_Order(each.rows, name) for each, name in ((x, "image"), (y, "text"))]
    i, j = torch.triu_indices(len(x), len(x), offset=1, device=x.rows.device)
    for block in range(x.blocks):
        rows = x.kept(block)
        kept = rows[i] & rows[j]
        yield _correlation(*(order.ranks(kept) for order in orders))


add_measure(Measure(name="rsa", function=rsa, left_out=_left_out))
