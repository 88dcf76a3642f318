"""Transport between two sets, seen as distributions, along random directions."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.statistics.statistic import BlockedRows, Statistic
from clip_geometry.geometry.statistics.sums import Means
from clip_geometry.rows.matrix import Rows, about, as_two_sets, mean_row, total

PROJECTED = 2**22  # projected values per block: 32 MB


class Transport(NamedTuple):
    """The two parts of the mean squared Wasserstein distance of the projections, and the mean square of all entries.

    `shift` is the part of the means, averaged over all directions; `rest` is the rest, averaged over random directions.
    """

    shift: Float[Tensor, ""]
    rest: Float[Tensor, ""]
    square: Float[Tensor, ""]

    @classmethod
    def of(cls, means: Means, rest: Float[Tensor, ""]) -> "Transport":
        image, text = means.squares
        return cls((means.image - means.text).square().mean(), rest, (image + text) / (2 * len(means.image)))


class Projections(Statistic):
    """Squared Wasserstein distances of two sets, projected on orthonormal random directions."""

    def __init__(self, image: Rows, text: Rows):
        self._rows = as_two_sets(image, text, ("image", "text"))

    def transport(self, directions: int, seed: int) -> Transport:
        """Return the `Transport` over the given number of random directions, drawn with the seed."""
        means = Means(*self._rows)
        x, y = about(self._rows[0], means.image), about(self._rows[1], means.text)
        distances = []
        for axes in _batches(x, len(x) + len(y), directions, seed):
            distances.append(_squared_wasserstein((x @ axes).sort(dim=0).values, (y @ axes).sort(dim=0).values).sum())
        return Transport.of(means, total(distances) / directions)

    @classmethod
    def without_each(cls, image: BlockedRows, text: BlockedRows) -> Iterator["Projections"] | None:
        """Project and sort the rows only once for all blocks."""
        if image.streamed or text.streamed:
            return None
        means = list(Means.without_each(image, text))

        @functools.cache
        def transports(directions: int, seed: int) -> list[Transport]:
            rests = image.counts.new_zeros(image.blocks)
            for axes in _batches(image.rows, len(image) + len(text), directions, seed):
                x = _sorted_without_each(image, [of_block.image for of_block in means], axes)
                y = _sorted_without_each(text, [of_block.text for of_block in means], axes)
                rests += torch.stack([_squared_wasserstein(a, b).sum() for a, b in zip(x, y, strict=True)])
            return [Transport.of(of_block, rest) for of_block, rest in zip(means, rests / directions, strict=True)]

        def transport(block: int, directions: int, seed: int) -> Transport:
            return transports(directions, seed)[block]

        return (cls.known(transport=functools.partial(transport, block)) for block in range(image.blocks))


def _sorted_without_each(
    rows: BlockedRows, means: list[Tensor], axes: Float[Tensor, "d l"]
) -> Iterator[Float[Tensor, "m l"]]:
    """Yield the sorted projections without each block, about their mean."""
    base = mean_row(rows.rows)
    values, order = (about(rows.rows, base) @ axes).T.sort(dim=1)
    for block, mean in enumerate(means):
        yield (values[rows.kept(block)[order]].view(len(values), -1) - ((mean - base) @ axes)[:, None]).T


def _batches(x: Tensor, rows: int, directions: int, seed: int) -> tuple[Float[Tensor, "d l"], ...]:
    """Split the directions into as many at a time as the projections of all rows allow."""
    return random_directions(x.shape[1], directions, seed).to(x.device).split(max(1, PROJECTED // rows), dim=1)


@functools.lru_cache(maxsize=4)  # the jackknife needs the same directions many times
def random_directions(d: int, count: int, seed: int) -> Float[Tensor, "d l"]:
    """Return unit vectors that are uniform on the sphere; each group of d vectors is orthonormal."""
    generator = torch.Generator().manual_seed(seed)
    counts = [min(d, count - start) for start in range(0, count, d)]
    groups = (torch.randn(d, size, generator=generator, dtype=torch.float64) for size in counts)
    return torch.cat([torch.linalg.qr(group).Q for group in groups], dim=1)


def _squared_wasserstein(x: Float[Tensor, "n l"], y: Float[Tensor, "m l"]) -> Float[Tensor, " l"]:
    """Return W₂² of each pair of sorted columns: the mean squared difference of the quantile functions."""
    n, m = len(x), len(y)
    if n == m:
        return (x - y).square().mean(0)
    # in units of 1/(nm) both quantile functions are constant between these ends
    ends = torch.cat([m * torch.arange(1, n + 1), n * torch.arange(1, m + 1)]).unique().to(x.device)
    lengths = ends.diff(prepend=ends.new_zeros(1)).double() / (n * m)
    return lengths @ (x[(ends - 1) // m] - y[(ends - 1) // n]).square()
