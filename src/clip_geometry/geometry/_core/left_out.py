"""Rows with one block after the other left out, and the work that all of these subsets share."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clip_geometry.geometry._core.class_sums import ClassSums, class_sums
from clip_geometry.geometry._core.moments import Moments, moments_of_groups
from clip_geometry.geometry._core.rows import BLOCK, Matrix, require_spread, unit_rows
from clip_geometry.geometry._core.streamed import StreamedRows

MOST_BYTES = 2**28  # of the moments of all blocks


class LeftOut:
    """The subsets of a delete-block jackknife.

    Args:
        rows: (n, d), checked. Of StreamedRows there are moments and sums only.
        block_of: (n,) block of each row, 0 to blocks − 1, or −1 for rows that are never left out.
        blocks: Number of blocks. A block may be empty.
        sums: Whether sums over blocks may replace the rows of each subset, at the price of the last digits.
    """

    def __init__(self, rows: Float[Matrix, "n d"], block_of: Int[Tensor, " n"], blocks: int, *, sums: bool = False):
        self.rows: Any = rows
        self.block_of, self.blocks, self.sums = block_of, blocks, sums
        self._squares: dict[tuple[int, bool], Tensor] = {}  # by block and center
        self._differences: dict[LeftOut, Tensor] = {}
        self.shared: dict[Any, Any] = {}  # what measures of one function family keep for each other

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fewest(self) -> int:
        """Rows in the smallest subset."""
        inside = self.block_of[self.block_of >= 0]
        return len(self.rows) - int(torch.bincount(inside, minlength=1).max())

    def kept(self, block: int) -> Bool[Tensor, " n"]:
        return self.block_of != block

    def without(self, block: int) -> Float[Tensor, "m d"]:
        """The subset without the block."""
        return self.rows[self.kept(block)]

    @property
    def has_moments(self) -> bool:
        """Whether the moments of all blocks fit into MOST_BYTES."""
        return 8 * (2 * self.blocks + 2) * self.rows.shape[1] ** 2 <= MOST_BYTES

    @cached_property
    def moments(self) -> list[Moments]:
        """The moments of each subset."""
        present, codes = self.block_of.unique(return_inverse=True)
        if isinstance(self.rows, StreamedRows):  # in one pass
            parts = moments_of_groups(self.rows, codes, len(present))
        else:
            parts = [Moments.of(self.rows[self.block_of == block]) for block in present]
        return list(moments_without_each(dict(zip(present.tolist(), parts, strict=True)), self.blocks))

    # --- sums, which are taken block by block: all rows at once are not copied

    @cached_property
    def _kept_groups(self) -> Float[Tensor, "b g"]:
        """1 for the groups that a subset keeps: each block is a group, and so are the rows that are never left out."""
        return 1 - torch.eye(self.blocks, self.blocks + 1, dtype=torch.float64, device=self.block_of.device)

    @cached_property
    def _streamed(self) -> StreamedRows:
        return self.rows if isinstance(self.rows, StreamedRows) else StreamedRows.of(self.rows)

    @cached_property
    def _codes(self) -> Int[Tensor, " n"]:
        return torch.where(self.block_of < 0, self.blocks, self.block_of)

    @cached_property
    def _groups(self) -> ClassSums:
        return class_sums(self._streamed, self._codes, self.blocks + 1)

    @cached_property
    def _unit_groups(self) -> ClassSums:
        unit = unit_rows(self._streamed)
        return self._groups if unit is self._streamed else class_sums(unit, self._codes, self.blocks + 1)

    @cached_property
    def weights(self) -> Float[Tensor, "b n"]:
        """1 for the rows of each subset, 0 for those of its block."""
        return (self.block_of != torch.arange(self.blocks, device=self.block_of.device)[:, None]).double()

    @cached_property
    def counts(self) -> Float[Tensor, " b"]:
        return self._kept_groups @ torch.bincount(self._codes, minlength=self.blocks + 1).double()

    @cached_property
    def means(self) -> Float[Tensor, "b d"]:
        """The mean row of each subset."""
        return self._groups.mean + self._kept_groups @ self._groups.sums / self.counts[:, None]

    @property
    def unit_mean(self) -> Float[Tensor, " d"]:
        """The mean of all unit rows."""
        return self._unit_groups.mean

    @cached_property
    def unit_means(self) -> Float[Tensor, "b d"]:
        """The mean unit row of each subset, about that of all rows."""
        return self._kept_groups @ self._unit_groups.sums / self.counts[:, None]

    @cached_property
    def unit_spreads(self) -> Float[Tensor, " b"]:
        """Σ‖u_i − ū‖² of the unit rows of each subset."""
        groups = self._unit_groups
        apart = (groups.offsets - self.unit_means[:, None]).square_().sum(2)
        return (self._kept_groups * (groups.scatters + groups.counts * apart)).sum(1)

    def sums_over_unit_rows(self, of_block: Callable[[Tensor], Tensor]) -> Float[Tensor, " b"]:
        """Σ over the rows of each subset of what `of_block` gives for some unit rows about their mean, (m, b)."""
        found = self.counts.new_zeros(self.blocks)
        blocks = torch.arange(self.blocks)
        for rows, own in zip(unit_rows(self._streamed).split(BLOCK), self._codes.split(BLOCK), strict=True):
            found += of_block(rows - self.unit_mean).masked_fill_(own[:, None] == blocks, 0).sum(0)
        return found

    def differences(self, other: "LeftOut") -> Float[Tensor, " b"]:
        """Σ‖u_i − v_i‖² of the unit rows of aligned subsets."""
        if other not in self._differences:
            apart = self.counts.new_zeros(self.blocks + 1)
            both = (unit_rows(each._streamed).split(BLOCK) for each in (self, other))
            for u, v, own in zip(*both, self._codes.split(BLOCK), strict=True):
                apart.index_add_(0, own, (u - v).square_().sum(1))
            self._differences[other] = self._kept_groups @ apart
        return self._differences[other]

    # --- spectra

    def decomposed(self, block: int) -> tuple[Float[Tensor, " r"], Float[Tensor, "r r"]]:
        """Squared singular values, ascending, and orthonormal vectors of a subset.

        The vectors are left ones where the subset has fewer rows than columns, right ones otherwise. Squares below
        rounding are 0.
        """
        squares, vectors = torch.linalg.eigh(self._product(self._plain, self._plain_product, block, center=False))
        self._squares[block, False] = squares = _without_rounding(squares, len(self.rows))
        return squares, vectors

    def squared_singular_values(self, block: int, *, center: bool) -> Float[Tensor, " r"]:
        """Of a subset, ascending; those below rounding are 0."""
        if (block, center) not in self._squares:
            rows, product = (self._centered, self._centered_product) if center else (self._plain, self._plain_product)
            require_spread(self.without(block))
            squares = torch.linalg.eigvalsh(self._product(rows, product, block, center=center))
            self._squares[block, center] = _without_rounding(squares, len(self.rows))
        return self._squares[block, center]

    @cached_property
    def _plain(self) -> Float[Tensor, "n d"]:
        return self.rows.double()

    @cached_property
    def _centered(self) -> Float[Tensor, "n d"]:
        return self._plain - self._plain.mean(0)

    @cached_property
    def _plain_product(self) -> Tensor:
        return self._whole(self._plain)

    @cached_property
    def _centered_product(self) -> Tensor:
        return self._whole(self._centered)

    @property
    def wide(self) -> bool:
        """Whether every subset has fewer rows than columns."""
        return len(self.rows) <= self.rows.shape[1]

    def _whole(self, rows: Float[Tensor, "n d"]) -> Tensor:
        return rows @ rows.T if self.wide else rows.T @ rows

    def _product(self, rows: Float[Tensor, "n d"], whole: Tensor, block: int, *, center: bool) -> Tensor:
        """The smaller of X Xᵀ and Xᵀ X of a subset, X about its own mean if asked for."""
        kept = self.kept(block)
        if self.wide:
            part = whole[kept][:, kept]
            if not center:
                return part
            means = part.mean(0)
            return part - means - means[:, None] + means.mean()
        gone = rows[~kept]
        part = whole - gone.T @ gone
        if not center:
            return part
        n = int(kept.sum())
        total = -gone.sum(0)  # all rows together have mean 0
        return part - torch.outer(total, total) / n


def _without_rounding(squares: Float[Tensor, " r"], n: int) -> Float[Tensor, " r"]:
    return torch.where(squares > n * torch.finfo(squares.dtype).eps * squares[-1], squares, 0)


def moments_without_each(parts: Mapping[int, Moments], blocks: int) -> Iterator[Moments]:
    """All parts but one, for each of the blocks: the sum of those before it and of those after it.

    Args:
        parts: Block → moments of its rows; −1 for rows that are never left out. Empty blocks are absent.
        blocks: Number of blocks.
    """
    after: list[Moments | None] = [None]  # of the parts from each on, the last first
    for part in reversed(list(parts.values())):
        after.append(_sum(part, after[-1]))
    total, before = after.pop(), None
    for number, part in parts.items():
        rest = _sum(before, after.pop())
        if number >= 0 and rest is not None:
            yield rest
        before = _sum(before, part)
    assert total is not None
    yield from [total] * (blocks - sum(number >= 0 for number in parts))


def _sum(a: Moments | None, b: Moments | None) -> Moments | None:
    return b if a is None else a if b is None else a + b
