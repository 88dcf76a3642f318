"""The base class `Statistic`, and `BlockedRows`, rows that are assigned to the blocks of a jackknife."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clip_geometry.geometry.statistics.class_sums import ClassSums, class_sums
from clip_geometry.rows.matrix import Matrix, unit_rows
from clip_geometry.rows.streamed import StreamedRows

T = TypeVar("T")
S = TypeVar("S", bound="Statistic")


class BlockedRows:
    """Rows assigned to the blocks of a delete-block jackknife, and sums that statistics share.

    Args:
        rows: Checked rows, (n, d).
        block_of: Block of each row, (n,), from 0 to blocks − 1, or −1 for rows that are never left out.
        blocks: Number of blocks. A block may be empty; the rows without it are all rows.
    """

    def __init__(self, rows: Float[Matrix, "n d"], block_of: Int[Tensor, " n"], blocks: int):
        self.rows: Any = rows
        self.block_of = block_of
        self.blocks = blocks
        self._shared: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def streamed(self) -> bool:
        return isinstance(self.rows, StreamedRows)

    @property
    def fewest(self) -> int:
        """Number of rows that remain without the largest block."""
        inside = self.block_of[self.block_of >= 0]
        return len(self.rows) - int(torch.bincount(inside, minlength=1).max())

    def kept(self, block: int) -> Bool[Tensor, " n"]:
        """Return the mask of the rows that remain without the block."""
        return self.block_of != block

    def without(self, block: int) -> Float[Tensor, "m d"]:
        return self.rows[self.kept(block)]

    def shared(self, make: Callable[["BlockedRows"], T]) -> T:
        """Return `make(self)`, computed once for all statistics that need it."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return self._shared[make]

    # --- sums by block; rows are read in blocks, so that they are never all copied at once

    @cached_property
    def in_blocks(self) -> Any:
        """The rows, for reading in blocks. On a GPU they are not streamed, since streamed rows are read to the CPU."""
        return self.rows if self.streamed or self.rows.is_cuda else StreamedRows.of(self.rows)

    @cached_property
    def groups(self) -> Int[Tensor, " n"]:
        """The block of each row, where rows that are never left out form an additional group."""
        return torch.where(self.block_of < 0, self.blocks, self.block_of)

    @cached_property
    def kept_groups(self) -> Float[Tensor, "b g"]:
        """Matrix that is 1 for the groups that remain without each block, otherwise 0."""
        return 1 - torch.eye(self.blocks, self.blocks + 1, dtype=torch.float64, device=self.block_of.device)

    @cached_property
    def counts(self) -> Float[Tensor, " b"]:
        """Number of rows that remain without each block."""
        return self.kept_groups @ torch.bincount(self.groups, minlength=self.blocks + 1).double()

    @cached_property
    def sums(self) -> ClassSums:
        """`ClassSums` of the rows of each group."""
        return class_sums(self.in_blocks, self.groups, self.blocks + 1)

    @cached_property
    def unit_sums(self) -> ClassSums:
        """`ClassSums` of the unit rows of each group."""
        unit = unit_rows(self.in_blocks)
        return self.sums if unit is self.in_blocks else class_sums(unit, self.groups, self.blocks + 1)

    def means(self, sums: ClassSums) -> Float[Tensor, "b d"]:
        """Return the mean without each block, relative to the mean of all rows."""
        return self.kept_groups @ sums.sums / self.counts[:, None]

    def spreads(self, sums: ClassSums) -> Float[Tensor, " b"]:
        """Return Σ‖w − mean‖² without each block."""
        squares = (sums.offsets - self.means(sums)[:, None]).square_().sum(2)  # from the mean of each group
        return (self.kept_groups * (sums.scatters + sums.counts * squares)).sum(1)


class Statistic:
    """The quantities that a group of measures needs from the rows.

    A measure is a function of its statistic, whatever the mode of computation. A subclass takes the arguments of its
    measures, checks them, and computes its attributes on demand, so that all measures of one statistic share them.
    `without_each` yields the same statistic for the rows without each block.
    """

    same_as: ClassVar[type | None] = None  # class with the same attributes, but other arguments
    includes_all: ClassVar[bool] = False  # whether the passes of `without_each` also give the statistic of all rows

    @classmethod
    def of(cls: type[S], *sets: Any, **_: Any) -> S:
        """Return the statistic of the arguments of a measure. A statistic given in place of the rows is returned
        unchanged."""
        return sets[0] if isinstance(sets[0], cls.same_as or cls) else cls(*sets)

    @classmethod
    def known(cls: type[S], **values: Any) -> S:
        """Create a statistic from the values of its attributes."""
        statistic = cls.__new__(cls)
        statistic.__dict__.update(values)
        return statistic

    @classmethod
    def without_each(cls, *sets: Any, **_: Any) -> Iterator["Statistic"] | None:
        """Yield the statistic without each block in turn; return None if computing them one by one is best.

        `sets` are the arguments of the measure, with `BlockedRows` in place of each set of rows.
        """
        return None
