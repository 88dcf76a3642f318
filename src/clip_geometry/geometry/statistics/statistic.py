"""What a statistic is, and the rows that it is computed of without one block after the other."""

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


class Dealt:
    """Rows that were dealt into the blocks of a delete-block jackknife, and the sums that statistics share.

    Args:
        rows: (n, d), checked.
        block_of: (n,) block of each row, 0 to blocks − 1, or −1 for rows that are never left out.
        blocks: Number of blocks. A block may be empty: the rows without it are all rows.
    """

    def __init__(self, rows: Float[Matrix, "n d"], block_of: Int[Tensor, " n"], blocks: int):
        self.rows: Any = rows
        self.block_of, self.blocks = block_of, blocks
        self._shared: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def streamed(self) -> bool:
        return isinstance(self.rows, StreamedRows)

    @property
    def fewest(self) -> int:
        """Rows that are left without the largest block."""
        inside = self.block_of[self.block_of >= 0]
        return len(self.rows) - int(torch.bincount(inside, minlength=1).max())

    def kept(self, block: int) -> Bool[Tensor, " n"]:
        """Which rows are left without the block."""
        return self.block_of != block

    def without(self, block: int) -> Float[Tensor, "m d"]:
        return self.rows[self.kept(block)]

    def shared(self, make: Callable[["Dealt"], T]) -> T:
        """What is made of these rows once, for all statistics that ask for it."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return self._shared[make]

    # --- sums by block, read block by block: all rows at once are not copied

    @cached_property
    def in_blocks(self) -> Any:
        """The rows, to be walked through: on a GPU as they are, since streamed rows are read to the CPU."""
        return self.rows if self.streamed or self.rows.is_cuda else StreamedRows.of(self.rows)

    @cached_property
    def groups(self) -> Int[Tensor, " n"]:
        """The block of each row; rows that are never left out are one more group."""
        return torch.where(self.block_of < 0, self.blocks, self.block_of)

    @cached_property
    def kept_groups(self) -> Float[Tensor, "b g"]:
        """1 for the groups that are left without each block."""
        return 1 - torch.eye(self.blocks, self.blocks + 1, dtype=torch.float64, device=self.block_of.device)

    @cached_property
    def counts(self) -> Float[Tensor, " b"]:
        """Rows that are left without each block."""
        return self.kept_groups @ torch.bincount(self.groups, minlength=self.blocks + 1).double()

    @cached_property
    def sums(self) -> ClassSums:
        """Of the rows of each group."""
        return class_sums(self.in_blocks, self.groups, self.blocks + 1)

    @cached_property
    def unit_sums(self) -> ClassSums:
        """The same of the unit rows."""
        unit = unit_rows(self.in_blocks)
        return self.sums if unit is self.in_blocks else class_sums(unit, self.groups, self.blocks + 1)

    def means(self, sums: ClassSums) -> Float[Tensor, "b d"]:
        """The mean without each block, about the mean of all rows."""
        return self.kept_groups @ sums.sums / self.counts[:, None]

    def spreads(self, sums: ClassSums) -> Float[Tensor, " b"]:
        """Σ‖w − mean‖² without each block."""
        apart = (sums.offsets - self.means(sums)[:, None]).square_().sum(2)
        return (self.kept_groups * (sums.scatters + sums.counts * apart)).sum(1)


class Statistic:
    """What measures of one kind need of the rows. A measure is a function of it, in which no mode shows.

    A subclass takes what its measures take, checks it, and computes its attributes when they are asked for, so that all
    measures of one statistic share them. `without_each` yields the same statistic of the rows without each block.
    """

    same_as: ClassVar[type | None] = None  # the class whose attributes it has, of other sets
    includes_all: ClassVar[bool] = False  # whether the passes for those without each block give that of all rows, too

    @classmethod
    def of(cls: type[S], *sets: Any, **_: Any) -> S:
        """The statistic of what a measure takes; one that is given in place of the rows is returned as it is."""
        return sets[0] if isinstance(sets[0], cls.same_as or cls) else cls(*sets)

    @classmethod
    def known(cls: type[S], **values: Any) -> S:
        """A statistic whose attributes are these."""
        found = cls.__new__(cls)
        found.__dict__.update(values)
        return found

    @classmethod
    def without_each(cls, *sets: Any, **_: Any) -> Iterator["Statistic"] | None:
        """The statistic without each block in turn, `Dealt` in place of each set of rows; None where that is best done
        one by one."""
        return None
