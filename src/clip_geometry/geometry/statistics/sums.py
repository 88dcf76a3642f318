"""Means and spreads of rows, of their directions and of pairs, in blocks and linear in n."""

import operator
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.statistics.statistic import BlockedRows, Statistic
from clip_geometry.rows.matrix import (
    BLOCK,
    Rows,
    as_aligned,
    as_matrix,
    as_two_sets,
    blocks,
    mean_row,
    total,
    unit_blocks,
    unit_rows,
)
from clip_geometry.rows.streamed import StreamedRows

PAIR = ("image", "text")


class UnitSums(Statistic):
    """Count, mean and spread of the directions u of n rows.

    Attributes:
        n: Number of rows.
        mean: ū, (d,).
        spread: Σ‖u_i − ū‖², computed from differences, which are precise even if all rows nearly coincide.
    """

    includes_all = True

    def __init__(self, x: Rows, *, name: str = "x"):
        self.rows = as_matrix(x, name=name)
        self.name = name
        self.n: Any = len(self.rows)

    @cached_property
    def mean(self) -> Float[Tensor, " d"]:
        if isinstance(self.rows, StreamedRows):
            return mean_row(unit_rows(self.rows))
        return torch.stack([u.sum(0) for u in unit_blocks(self.rows, name=self.name)]).sum(0) / self.n

    @cached_property
    def spread(self) -> Float[Tensor, ""]:
        mean = self.mean
        if not isinstance(self.rows, StreamedRows):
            return torch.stack([(u - mean).square().sum() for u in unit_blocks(self.rows, name=self.name)]).sum()

        def accumulate(squares: Tensor, block: Tensor, along: Tensor | None) -> Tensor:
            return squares.add_((block - mean).square_().sum())

        return unit_rows(self.rows).aggregate(lambda: mean.new_zeros(()), accumulate, operator.add, BLOCK)

    @property
    def mean_distance(self) -> Float[Tensor, ""]:
        """Mean of 1 − cos over the pairs of different rows.

        Since 1 − cos = ‖u − v‖²/2, it is the trace of the covariance of the directions.
        """
        return self.spread / (self.n - 1)

    @classmethod
    def without_each(cls, rows: BlockedRows) -> Iterator["UnitSums"]:
        sums = rows.unit_sums
        means = sums.mean + rows.means(sums)
        without = zip(rows.counts, means, rows.spreads(sums), strict=True)
        return (cls.known(n=n, mean=mean, spread=spread) for n, mean, spread in without)


class UnitPairs(Statistic):
    """The directions of n matching pairs.

    Attributes:
        n: Number of pairs.
        image: `UnitSums` of the first set.
        text: `UnitSums` of the second set.
        apart: Σ‖u_i − v_i‖² over the pairs.
    """

    includes_all = True

    def __init__(self, image: Rows, text: Rows):
        self._rows = as_aligned(image, text, PAIR, least=1, streams=True)
        self.n: Any = len(self._rows[0])

    @cached_property
    def image(self) -> UnitSums:
        return UnitSums(self._rows[0], name="image")

    @cached_property
    def text(self) -> UnitSums:
        return UnitSums(self._rows[1], name="text")

    @cached_property
    def apart(self) -> Float[Tensor, ""]:
        unit = (unit_blocks(rows, name=name) for rows, name in zip(self._rows, PAIR, strict=True))
        return total((u - v).square().sum() for u, v in zip(*unit, strict=True))

    @classmethod
    def without_each(cls, image: BlockedRows, text: BlockedRows) -> Iterator["UnitPairs"]:
        apart = _apart_by_group(image, (unit_rows(rows.in_blocks).split(BLOCK) for rows in (image, text)))
        without = zip(UnitSums.without_each(image), UnitSums.without_each(text), image.kept_groups @ apart, strict=True)
        return (cls.known(n=u.n, image=u, text=v, apart=between) for u, v, between in without)


class PairDistance(Statistic):
    """Σ‖x_i − y_i‖² of n matching pairs, rows as given.

    Attributes:
        n: Number of pairs.
        apart: The sum.
    """

    includes_all = True

    def __init__(self, x: Rows, y: Rows):
        x, y = as_aligned(x, y, PAIR, least=1, streams=True)
        self.n: Any = len(x)
        self.apart = total((a - b).square().sum() for a, b in zip(blocks(x), blocks(y), strict=True))

    @classmethod
    def without_each(cls, x: BlockedRows, y: BlockedRows) -> Iterator["PairDistance"]:
        apart = _apart_by_group(x, (rows.in_blocks.split(BLOCK) for rows in (x, y)))
        return (cls.known(n=n, apart=kept) for n, kept in zip(x.counts, x.kept_groups @ apart, strict=True))


def _apart_by_group(blocked: BlockedRows, rows: Iterable[Iterable[Tensor]]) -> Float[Tensor, " g"]:
    """Sum ‖a_i − b_i‖² over the pairs of each group, (blocks + 1,); the last group is in no block."""
    apart = blocked.counts.new_zeros(blocked.blocks + 1)
    for a, b, groups in zip(*rows, blocked.groups.split(BLOCK), strict=True):
        apart.index_add_(0, groups, (a.double() - b.double()).square_().sum(1))
    return apart


class Means(Statistic):
    """The mean rows of two sets, which need not be paired.

    Attributes:
        image: Mean of the first set, (d,).
        text: Mean of the second set, (d,).
        squares: Mean squared length of the rows of each set.
    """

    includes_all = True

    def __init__(self, image: Rows, text: Rows):
        self._rows = as_two_sets(image, text, PAIR, streams=True)

    @cached_property
    def image(self) -> Float[Tensor, " d"]:
        return mean_row(self._rows[0])

    @cached_property
    def text(self) -> Float[Tensor, " d"]:
        return mean_row(self._rows[1])

    @cached_property
    def squares(self) -> tuple[Tensor, ...]:
        return tuple(total(block.square().sum() for block in blocks(rows)) / len(rows) for rows in self._rows)

    @classmethod
    def without_each(cls, image: BlockedRows, text: BlockedRows) -> Iterator["Means"]:
        means, squares = [], []
        for rows in (image, text):
            of_set = rows.sums.mean + rows.means(rows.sums)
            means.append(of_set)
            squares.append(rows.spreads(rows.sums) / rows.counts + of_set.square().sum(1))
        without = zip(*means, *squares, strict=True)
        return (cls.known(image=i, text=t, squares=(of_i, of_t)) for i, t, of_i, of_t in without)
