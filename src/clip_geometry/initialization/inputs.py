"""Images and captions as a model's `forward` takes them; its first layer turns them into second moments."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from clip_geometry.initialization.rules import biased, gain_of, linear
from clip_geometry.initialization.state import State, new_index
from clip_geometry.initialization.windows import MOST_PLACES, Window, regridded


class Pixels(Tensor):
    """Pixel values (n, 3, height, width), until the first convolution or linear layer."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__ == "conv2d":
            return _conv2d(*args, **kwargs)
        if func.__name__ != "linear":
            return super().__torch_function__(func, types, args, kwargs)
        rows = _plain(args[0]).flatten(0, -2).double()
        sites = torch.arange(len(rows)).view(*args[0].shape[:-1], 1)
        return linear(State.of(new_index(sites, rows.shape[1]), rows @ rows.T / rows.shape[1]), *args[1:], **kwargs)


class Tokens(Tensor):
    """Token ids (n, length), until the embedding."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ != "embedding":
            return super().__torch_function__(func, types, args, kwargs)
        ids, weight = args[:2]
        words, inverse = torch.unique(_plain(ids), return_inverse=True)
        # rows of different tokens are independent, of equal tokens the same
        second = weight.detach().double().square().mean() * torch.eye(len(words), dtype=torch.float64)
        return State.of(new_index(inverse[..., None], weight.shape[1]), second)


def _plain(x: Tensor) -> Tensor:
    return x.as_subclass(Tensor).detach()


def _conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> State:  # fmt: skip
    """The exact moments of some positions: of all, or of a grid and of neighbors of its positions."""
    x = _plain(x)
    window = Window.of(weight.shape[2:], stride, padding, dilation)
    height, width = window.out(x.shape[2:])
    n, gain = len(x), gain_of(weight, 1)
    columns = F.unfold(x, window.size, window.dilation, window.padding, window.stride).double()  # (n, taps, positions)
    patchified = window.size == window.stride and min(window.size) > 4  # tokens of a transformer are kept one by one
    most = max(height, width) if patchified else MOST_PLACES
    grid = min(height, most), min(width, most)
    rows = ((torch.arange(grid[0]) + 0.5) * height / grid[0]).long()
    across = ((torch.arange(grid[1]) + 0.5) * width / grid[1]).long()

    def taken(down: int, right: int) -> Tensor:
        lines, places = (rows + down).clamp(max=height - 1), (across + right).clamp(max=width - 1)
        found = columns[:, :, (lines[:, None] * width + places).reshape(-1)]
        return found.transpose(1, 2).reshape(n * grid[0] * grid[1], -1)

    sites = taken(0, 0)
    second = gain * sites @ sites.T
    cell = max(height / grid[0], width / grid[1])
    lags = [2**k for k in range(math.ceil(math.log2(cell)))] if cell > 1 else []
    near = [gain * ((sites * taken(0, lag)).sum(1) + (sites * taken(lag, 0)).sum(1)) / 2 for lag in lags]
    near = torch.stack(near, 1) if near else second.new_zeros(len(second), 0)
    # neighbors have the moment of the site itself: only their correlation is taken
    for k, lag in enumerate(lags):
        other = [gain * taken(*step).square().sum(1) for step in ((0, lag), (lag, 0))]
        scale = (second.diagonal() * (other[0] + other[1]) / 2).sqrt().clamp(min=1e-18)
        near[:, k] *= second.diagonal() / scale
    second, near, found = regridded(second, near, n, grid, height, width)
    return biased(State.of(new_index(found, len(weight), 1), second, None, near), bias).fresh(len(weight))
