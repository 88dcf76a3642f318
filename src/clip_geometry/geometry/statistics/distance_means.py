"""Mean Euclidean distances within two sets and between them, over all pairs of rows, in blocks."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import distances
from clip_geometry.geometry.statistics.statistic import Dealt, Statistic
from clip_geometry.rows.matrix import Matrix, Rows, about, as_two_sets, mean_row, total

BLOCK = 1024  # rows: 8 MB of float64 distances


class Apart(NamedTuple):
    """Mean distances, a row and itself included."""

    between: Float[Tensor, ""]
    image: Float[Tensor, ""]
    text: Float[Tensor, ""]


class DistanceMeans(Statistic):
    """Mean distances of the rows of two sets, within each and between them."""

    def __init__(self, image: Rows, text: Rows):
        self._rows = as_two_sets(image, text, ("image", "text"), streams=True)

    def means(self, *, center: bool) -> Apart:
        """The means; center: with each set about its own mean."""
        image, text = self._rows
        x_mean, y_mean = mean_row(image), mean_row(text)
        if not center:  # about one point near both, where products do not cancel
            x_mean = y_mean = (x_mean + y_mean) / 2
        x, y = about(image, x_mean), about(text, y_mean)
        between = total(distances(a, b).sum() for a in x.split(BLOCK) for b in y.split(BLOCK)) / (len(x) * len(y))
        return Apart(between, _mean_within(x), _mean_within(y))

    @classmethod
    def without_each(cls, image: Dealt, text: Dealt) -> Iterator["DistanceMeans"] | None:
        """From the distances of all rows; with each set about its own mean, which every block moves, one by one."""
        if image.streamed or text.streamed:
            return None
        shared = _SharedMeans(image, text)
        return (_MeansWithoutBlock(shared, block) for block in range(image.blocks))


def _mean_within(x: Float[Matrix, "n d"]) -> Float[Tensor, ""]:
    """Over all n² pairs, each of different rows measured once."""

    def sums() -> Iterator[Tensor]:
        for start, block in zip(range(0, len(x), BLOCK), x.split(BLOCK), strict=True):
            yield distances(block, block).sum()
            for later in range(start + BLOCK, len(x), BLOCK):
                yield 2 * distances(block, x[later : later + BLOCK]).sum()

    return total(sums()) / len(x) ** 2


class _SharedMeans:
    def __init__(self, image: Dealt, text: Dealt):
        self.image, self.text = image, text

    @cached_property
    def means(self) -> list[Apart]:
        """Without each block."""
        middle = (mean_row(self.image.rows) + mean_row(self.text.rows)) / 2
        x, y = ((each.rows.double() - middle, each) for each in (self.image, self.text))
        return [Apart(*means) for means in zip(_means(x, y), _means(x, x), _means(y, y), strict=True)]


def _means(a: tuple[Tensor, Dealt], b: tuple[Tensor, Dealt]) -> Float[Tensor, " blocks"]:
    weights = [
        (dealt.block_of != torch.arange(dealt.blocks, device=rows.device)[:, None]).double() for rows, dealt in (a, b)
    ]
    parts = zip(a[0].split(BLOCK), weights[0].split(BLOCK, dim=1), strict=True)
    sums = total((kept.T * (distances(part, b[0]) @ weights[1].T)).sum(0) for part, kept in parts)
    return sums / (a[1].counts * b[1].counts)


class _MeansWithoutBlock(DistanceMeans):
    def __init__(self, shared: _SharedMeans, block: int):
        self._shared, self._block = shared, block

    def means(self, *, center: bool) -> Apart:
        if not center:
            return self._shared.means[self._block]
        image, text = (each.without(self._block) for each in (self._shared.image, self._shared.text))
        return DistanceMeans(image, text).means(center=True)
