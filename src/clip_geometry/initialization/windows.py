"""Windows over the positions of a map: convolutions, pooling and means."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from clip_geometry.initialization.rules import affine, biased, gain_of, rule
from clip_geometry.initialization.state import CHANNELS, Draw, State, new_index
from clip_geometry.registry import InputError

MOST_PLACES = 7  # sites along a side of a feature map; a larger map has as many cells, of several positions


@rule("conv2d")
def conv2d(
    x: State, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> State:  # fmt: skip
    if 1 not in x.channel_dims:
        raise InputError("there is no rule for conv2d over a dimension that holds no channels")
    x = x.unmixed()
    window = Window.of(weight.shape[2:], stride, padding, dilation)
    second, near, sites = window.taken(x)
    gain = gain_of(weight, weight[0].numel())
    found = State.of(new_index(sites, len(weight), 1), gain * second, None, gain * near)
    shared = None
    if weight.shape[1] == 1 and groups > 1:
        shared = _shared(found, near, weight.shape[2] * weight.shape[3])
        if bias is None:
            # the factor of each channel is chi-squared: weights and nodes of the quadrature of z² with five points
            nodes = ((8 / 15, 0.0), (0.4441519, 1.8377223), (0.0225147, 8.1622777))
            found.gains = tuple((share, shared * square + 1 - shared) for share, square in nodes)
    return biased(found, bias).fresh(len(weight), shared)


def _shared(x: State, near: Tensor, taps: int) -> float:
    """Share of the moments that the sum of a channel's own few weights scales: all of them in a smooth map."""
    diagonal = x.second.diagonal()
    if near.shape[1]:
        correlation = float(x.near[:, 0].sum() / diagonal.sum()) if float(diagonal.sum()) else 0.0
    else:
        sites = x.sites[:, 0]
        if sites.shape[2] < 2:
            return 0.0
        pairs = x.second[sites[:, :, :-1], sites[:, :, 1:]]
        correlation = float(pairs.mean() / diagonal.mean()) if float(diagonal.sum()) else 0.0
    return min(max(correlation, 0.0), 1.0) * (1 - 1 / taps) + 1 / taps


@rule("conv1d")
def conv1d(x: State, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
           groups: int = 1) -> State:  # fmt: skip
    def pair(value: Any) -> tuple[int, int]:
        return (value[0] if isinstance(value, tuple) else value), 0

    if 1 in x.channel_dims and 2 not in x.channel_dims:
        wide = x.with_codes(x.codes[..., None])
        along = [pair(each)[0] for each in (stride, padding, dilation)]
        found = conv2d(wide, weight[..., None], bias, (along[0], 1), (along[1], 0), (along[2], 1), groups)
        return found.with_codes(found.codes[..., 0])
    # over the channels of a pooled map (ECA): its neighbors are as independent as any
    x = x.settled()
    gain = gain_of(weight, weight[0].numel())
    return biased(State.of(x.codes, gain * x.second, None), bias)


class Window:
    """A window that slides over the sites of a map."""

    def __init__(self, size: tuple[int, int], stride: tuple[int, int], padding: Any, dilation: tuple[int, int]):
        self.size, self.stride, self.dilation = size, stride, dilation
        if padding == "same":
            padding = tuple((s - 1) * d // 2 for s, d in zip(size, dilation, strict=True))
        elif padding == "valid":
            padding = (0, 0)
        self.padding = padding

    @classmethod
    def of(cls, size: Any, stride: Any, padding: Any = 0, dilation: Any = 1) -> "Window":
        def pair(value: Any) -> Any:
            return (
                value
                if isinstance(value, str)
                else (value, value)
                if isinstance(value, int)
                else (tuple(value) * 2 if len(value) == 1 else tuple(value))
            )

        size = pair(size)
        return cls(size, pair(size if stride is None or stride == [] else stride), pair(padding), pair(dilation))

    def out(self, shape: Sequence[int], ceil: bool = False) -> tuple[int, int]:
        rounded = math.ceil if ceil else math.floor
        return tuple(  # pyright: ignore[reportReturnType]
            rounded((n + 2 * p - d * (k - 1) - 1) / s) + 1
            for n, k, s, p, d in zip(shape, self.size, self.stride, self.padding, self.dilation, strict=True)
        )

    def taken(self, x: State, ceil: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """(moments, near moments, sites) of the mean over the window's positions, the same for both of a pair."""
        settled = x.settled()
        sites = settled.sites[:, 0]
        height, width = self.out(sites.shape[1:], ceil)
        grid = grid_of(sites)
        if grid != tuple(sites.shape[1:]):
            return self.coarse(settled, sites, grid, height, width)
        second = F.pad(settled.second, (0, 1, 0, 1))  # the padding is a site of zeros
        taps = self.taps(sites, height, width, len(settled.second))
        total = second.new_zeros(len(taps[0]), len(taps[0]))
        for tap in taps:
            total += second[tap][:, tap]
        found = torch.arange(len(total)).view(len(sites), 1, height, width)
        return total / len(taps), settled.near.new_zeros(len(total), 0), found

    def taps(self, sites: Tensor, height: int, width: int, outside: int) -> list[Tensor]:
        """For each position of the window, the sites below it for all of its places, `outside` in the padding."""
        (kh, kw), (sh, sw), (ph, pw), (dh, dw) = self.size, self.stride, self.padding, self.dilation
        down = max(0, (height - 1) * sh + (kh - 1) * dh + 1 - sites.shape[1] - ph)
        right = max(0, (width - 1) * sw + (kw - 1) * dw + 1 - sites.shape[2] - pw)
        wide = F.pad(sites, (pw, right, ph, down), value=outside)
        return [
            wide[:, i * dh : i * dh + (height - 1) * sh + 1 : sh, j * dw : j * dw + (width - 1) * sw + 1 : sw].reshape(
                -1
            )
            for i in range(kh)
            for j in range(kw)
        ]

    def coarse(
        self, x: State, sites: Tensor, grid: tuple[int, int], height: int, width: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A cell stands for several positions; the window spreads them over a part of a cell."""
        second, near = x.second, x.near
        places = places_of(sites, grid)
        order = places.reshape(-1)
        second, near = second[order][:, order], near[order]
        n = len(sites)
        shape = (n, *grid)
        for axis, (size, dilation, whole) in enumerate(zip(self.size, self.dilation, sites.shape[1:], strict=True)):
            if size > 1:
                spread = dilation**2 * (size**2 - 1) / 12 / (whole / grid[axis]) ** 2
                second = _spread(second, shape, axis + 1, min(spread, 2 / 3))
        lags = round(math.log2(max(self.stride[0], 1)))
        return regridded(second, near[:, lags:], n, grid, height, width)


def _spread(second: Tensor, shape: tuple[int, ...], axis: int, variance: float) -> Tensor:
    """Both sites of a pair moved by −1, 0 or 1 along an axis, with this variance; edges stay."""
    size = shape[axis]
    total = (1 - variance) * second
    for step in (-1, 1):
        place = (torch.arange(size) + step).clamp(0, size - 1)
        moved = torch.arange(len(second)).view(shape).index_select(axis, place).reshape(-1)
        total = total + variance / 2 * second[moved][:, moved]
    return total


def grid_of(sites: Tensor) -> tuple[int, int]:
    """Number of different sites along the height and width of a map (n, height, width)."""
    row, column = sites[0, sites.shape[1] // 2], sites[0, :, sites.shape[2] // 2]  # not of the padding
    return len(torch.unique(column)), len(torch.unique(row))


def places_of(sites: Tensor, grid: tuple[int, int]) -> Tensor:
    """(n, *grid): the sites of a map, each once."""
    rows, columns = ((torch.arange(g) + 0.5) * s / g for g, s in zip(grid, sites.shape[1:], strict=True))
    return sites[:, rows.long()][:, :, columns.long()]


def regridded(
    second: Tensor, near: Tensor, n: int, grid: tuple[int, int], height: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Moments of sites in a grid, as a map of this height and width."""
    new = min(grid[0], height), min(grid[1], width)
    every = torch.arange(n * grid[0] * grid[1]).view(n, *grid)
    kept = places_of(every, new).reshape(-1)
    if new != grid:
        second, near = second[kept][:, kept], near[kept]
    cells = torch.arange(n * new[0] * new[1]).view(n, *new)
    rows, columns = (torch.arange(s) * g // s for g, s in zip(new, (height, width), strict=True))
    if new == (height, width):
        near = near[:, :0]
    return second, near, cells[:, rows][:, :, columns][:, None]


# --- pooling


@rule("avg_pool2d")
def avg_pool2d(
    x: State, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> State:  # fmt: skip
    window = Window.of(kernel_size, stride, padding)
    x = x.unmixed()
    sites = x.sites[:, 0]
    height, width = window.out(sites.shape[1:], ceil_mode)
    grid = grid_of(sites)
    channels = x.codes.shape[1]
    if grid == tuple(sites.shape[1:]):
        outside = len(x.second)
        taps = torch.stack(window.taps(sites, height, width, outside), 1)
        weight = (taps != outside).to(x.second)
        weight = weight / (taps.shape[1] if count_include_pad else weight.sum(1, keepdim=True))
        P = x.second.new_zeros(len(taps), outside + 1).scatter_add_(1, taps, weight)[:, :-1]
        found = torch.arange(len(P)).view(len(sites), 1, height, width)
        return State.of(new_index(found, channels, 1), P @ x.second @ P.T, P @ x.average)
    second, near, found = window.coarse(x, sites, grid, height, width)
    taps = window.size[0] * window.size[1]
    lag = x.near[:, 0] if x.near.shape[1] else x.second.diagonal()
    # positions of one window differ, on a grid of cells only the moment of a site with itself shows it
    kept = places_of(places_of(sites, grid), grid_of(found[:, 0])).reshape(-1)
    own = (x.second.diagonal()[kept] + (taps - 1) * lag[kept]) / taps
    second = second.clone()
    second.diagonal().copy_(torch.minimum(own, second.diagonal()))
    near = torch.minimum(near, own[:, None])
    return State.of(new_index(found, channels, 1), second, x.average[kept], near)


@rule("max_pool2d", "boolean_dispatch", "max_pool2d_with_indices")
def max_pool2d(
    x: State, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> State:  # fmt: skip
    """The largest of values taken for equally correlated: a shared part plus the largest of independent ones.

    A rising function, such as a ReLU before it, may as well be applied after it.
    """
    window = Window.of(kernel_size, stride, padding, dilation)
    raw = State.of(x.codes, x.second, x.average, x.near)

    second, near, found = window.taken(raw, ceil_mode)
    sites = raw.sites[:, 0]
    grid = grid_of(sites)
    height, width = found.shape[2:]
    if grid == (sites.shape[1], sites.shape[2]):
        taps = window.taps(sites, height, width, 0)
        middle = taps[len(taps) // 2]
        mean, diagonal = raw.average[middle], raw.second.diagonal()[middle]
        others = torch.stack([raw.second[middle, tap] for tap in taps if tap is not middle], 1).mean(1)
        second = raw.second[middle][:, middle]
        near = near[:, :0]
    else:
        kept = places_of(places_of(sites, grid), grid_of(found[:, 0])).reshape(-1)
        mean, diagonal = raw.average[kept], raw.second.diagonal()[kept]
        lags = raw.near[kept]
        others = lags[:, : max(1, window.size[0] // 2)].mean(1) if lags.shape[1] else diagonal
    variance = (diagonal - mean.square()).clamp(min=1e-18)
    apart = (1 - (others - mean.square()) / variance).clamp(0, 1)
    shift, left = largest(window.size[0] * window.size[1])
    new_mean = mean + shift * (variance * apart).sqrt()
    shrunk = (1 - apart * (1 - left)).sqrt()
    centered = (second - torch.outer(mean, mean)) * torch.outer(shrunk, shrunk)
    centered_near = (near - mean.square()[:, None]) * shrunk.square()[:, None]
    return State.of(
        new_index(found, x.codes.shape[1], 1), centered + torch.outer(new_mean, new_mean), new_mean,
        centered_near + new_mean.square()[:, None], x.function, x.gains,
        x.draw and Draw(x.draw.channels, x.draw.shared, x.draw.generator),
    )  # fmt: skip


def largest(n: int) -> tuple[float, float]:
    """Mean and variance of the largest of n independent standard normal values."""
    z = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    density = n * (-z.square() / 2).exp() / (2 * torch.pi) ** 0.5 * torch.special.ndtr(z) ** (n - 1)
    density = density / density.sum()
    mean = float((density * z).sum())
    return mean, float((density * z.square()).sum()) - mean**2


@rule("adaptive_avg_pool2d")
def adaptive_avg_pool2d(x: State, output_size: Any) -> State:
    size = (output_size, output_size) if isinstance(output_size, int) else tuple(output_size)
    height, width = x.codes.shape[-2:]
    size = (size[0] or height, size[1] or width)
    if size == (height, width):
        return x
    if size == (1, 1):
        return mean(x, (-2, -1), keepdim=True)
    if height % size[0] == 0 and width % size[1] == 0:
        return avg_pool2d(x, (height // size[0], width // size[1]))
    if height < size[0] and size[0] % height == 0:
        return x.with_codes(x.codes.repeat_interleave(size[0] // height, -2).repeat_interleave(size[1] // width, -1))
    raise InputError(f"there is no rule for adaptive_avg_pool2d from {(height, width)} to {size}")


@rule("sum")
def total(x: State, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> State:
    dims = [d % x.codes.ndim for d in ((dim,) if isinstance(dim, int) else dim)]
    return affine(mean(x, dims, keepdim), math.prod(x.codes.shape[d] for d in dims), 0.0)


@rule("mean")
def mean(x: State, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> State:
    """Over positions, or over channels: independent ones of several dimensions, or all, whose mean has no scatter."""
    dims = sorted(d % x.codes.ndim for d in ((dim,) if isinstance(dim, int) else dim))
    x = x.unmixed()
    over = [d for d in dims if d in x.channel_dims]
    sites = x.sites
    kept = [d for d in range(sites.ndim) if d not in dims]
    rows = sites.permute(*kept, *dims).reshape(-1, math.prod(sites.shape[d] for d in dims))
    P = x.second.new_zeros(len(rows), len(x.second))
    P.scatter_add_(1, rows, torch.full_like(rows, 1.0, dtype=P.dtype) / rows.shape[1])
    second, average = P @ x.second @ P.T, P @ x.average
    if x.near.shape[1]:  # positions of one cell are near each other rather than equal
        second.diagonal().add_(P.square() @ (x.near[:, -1] - x.second.diagonal()))
    if over:
        products = torch.outer(average, average)
        every = len(over) == len(x.channel_dims)
        second = products if every else products + (second - products) / math.prod(x.codes.shape[d] for d in over)
    shape = [1 if d in dims else sites.shape[d] for d in range(sites.ndim)]
    channel = x.codes
    for d in dims:
        channel = channel.narrow(d, 0, 1)
    index = torch.arange(len(rows)).view(shape) * CHANNELS + channel % CHANNELS
    if not keepdim:
        for d in reversed(dims):
            index = index.squeeze(d)
    return State.of(index, second, average)


@rule("norm", "linalg_vector_norm")
def norm(x: State, p: float = 2, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> State:
    """Euclidean, over many positions: the same for all channels."""
    dims = [d % x.codes.ndim for d in ((dim,) if isinstance(dim, int) else dim)]
    if p != 2 or set(dims) & set(x.channel_dims):
        raise InputError("there is no rule for norm but the Euclidean norm over positions")
    x = x.unmixed()
    squares = mean(State.of(x.codes, x.second, x.second.diagonal()), dims, keepdim)
    length = (squares.average * math.prod(x.codes.shape[d] for d in dims)).sqrt()
    return State.of(squares.codes, torch.outer(length, length), length)


@rule("amax")
def amax(x: State, dim: Any, keepdim: bool = False) -> State:
    raise InputError("there is no rule for a largest value over a whole map")
