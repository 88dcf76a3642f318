"""Two sets as distributions: mean distances over all pairs of rows, and transport along random directions."""

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import distances
from clip_geometry.geometry.statistics.statistic import Dealt, Statistic
from clip_geometry.rows.matrix import Matrix, Rows, about, as_two_sets, mean_row, total

BLOCK = 1024  # rows: 8 MB of float64 distances
PROJECTED = 2**22  # numbers at a time: 32 MB


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


class Transport(NamedTuple):
    """Of the mean squared Wasserstein distance of the projections: the means' part, taken over all directions, and the
    rest, over random ones. And the mean square of all entries."""

    shift: Float[Tensor, ""]
    rest: Float[Tensor, ""]
    square: Float[Tensor, ""]


class Projections(Statistic):
    """Squared Wasserstein distances of two sets, projected on orthonormal random directions."""

    def __init__(self, image: Rows, text: Rows):
        self._rows = as_two_sets(image, text, ("image", "text"))

    def transport(self, directions: int, seed: int) -> Transport:
        """Over so many directions, which the seed draws."""
        image, text = self._rows
        means = mean_row(image), mean_row(text)
        x, y = image.double() - means[0], text.double() - means[1]
        ordered = (
            ((x @ part).sort(dim=0).values, (y @ part).sort(dim=0).values)
            for part in _parts(x, len(x) + len(y), directions, seed)
        )
        rest = total(_squared_wasserstein(*both).sum() for both in ordered) / directions
        squares = [rows.square().mean() + mean.square().mean() for rows, mean in ((x, means[0]), (y, means[1]))]
        return Transport((means[0] - means[1]).square().mean(), rest, torch.stack(squares).mean())

    @classmethod
    def without_each(cls, image: Dealt, text: Dealt) -> Iterator["Projections"] | None:
        """Rows are projected and sorted once."""
        if image.streamed or text.streamed:
            return None
        shared = _SharedProjections(image, text)
        return (_ProjectionsWithoutBlock(shared, block) for block in range(image.blocks))


class _SharedProjections:
    def __init__(self, image: Dealt, text: Dealt):
        self.sets = image, text
        self._found: dict[tuple[int, int], list[Transport]] = {}

    def transports(self, directions: int, seed: int) -> list[Transport]:
        """Without each block."""
        if (directions, seed) not in self._found:
            image, text = self.sets
            means = [each.sums.mean + each.means(each.sums) for each in self.sets]
            rests = image.counts.new_zeros(image.blocks)
            for part in _parts(image.rows, len(image) + len(text), directions, seed):
                both = (_sorted_without_each(each, of, part) for each, of in zip(self.sets, means, strict=True))
                rests += torch.stack([_squared_wasserstein(x, y).sum() for x, y in zip(*both, strict=True)])
            squares = [
                ((each.spreads(each.sums) / each.counts + of.square().sum(1)) / of.shape[1])
                for each, of in zip(self.sets, means, strict=True)
            ]
            shifts = (means[0] - means[1]).square().mean(1)
            of_each = zip(shifts, rests / directions, (squares[0] + squares[1]) / 2, strict=True)
            self._found[directions, seed] = [Transport(*each) for each in of_each]
        return self._found[directions, seed]


class _ProjectionsWithoutBlock(Projections):
    def __init__(self, shared: _SharedProjections, block: int):
        self._shared, self._block = shared, block

    def transport(self, directions: int, seed: int) -> Transport:
        return self._shared.transports(directions, seed)[self._block]


def _sorted_without_each(
    rows: Dealt, means: Float[Tensor, "b d"], axes: Float[Tensor, "d l"]
) -> Iterator[Float[Tensor, "m l"]]:
    """The projections without each block about their mean, ascending."""
    base = mean_row(rows.rows)
    values, order = ((rows.rows.double() - base) @ axes).T.sort(dim=1)
    for block, mean in enumerate((means - base) @ axes):
        yield (values[rows.kept(block)[order]].view(len(values), -1) - mean[:, None]).T


def _parts(x: Tensor, rows: int, directions: int, seed: int) -> tuple[Float[Tensor, "d l"], ...]:
    """The directions, as many at a time as the projections of all rows allow."""
    return random_directions(x.shape[1], directions, seed).to(x.device).split(max(1, PROJECTED // rows), dim=1)


@lru_cache(maxsize=4)  # the jackknife asks for them again and again
def random_directions(d: int, count: int, seed: int) -> Float[Tensor, "d l"]:
    """Unit vectors, uniform on the sphere, d at a time orthonormal."""
    generator = torch.Generator().manual_seed(seed)
    counts = [min(d, count - start) for start in range(0, count, d)]
    drawn = (torch.randn(d, some, generator=generator, dtype=torch.float64) for some in counts)
    return torch.cat([torch.linalg.qr(each).Q for each in drawn], dim=1)


def _squared_wasserstein(x: Float[Tensor, "n l"], y: Float[Tensor, "m l"]) -> Float[Tensor, " l"]:
    """W₂² of each column, in ascending order: the mean squared difference of the quantile functions."""
    n, m = len(x), len(y)
    if n == m:
        return (x - y).square().mean(0)
    # in units of 1/(nm) both quantile functions are constant between these ends
    ends = torch.cat([m * torch.arange(1, n + 1), n * torch.arange(1, m + 1)]).unique().to(x.device)
    lengths = ends.diff(prepend=ends.new_zeros(1)).double() / (n * m)
    return lengths @ (x[(ends - 1) // m] - y[(ends - 1) // n]).square()
