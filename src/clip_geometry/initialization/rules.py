"""What each operation does to the second moments of a wide fresh network; weights enter by their mean squares."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from clip_geometry.initialization.state import CHANNELS, State, joined, lifted, new_index, same
from clip_geometry.registry import InputError

rules = State.rules
MOST_PLACES = 7  # sites along a side of a feature map; a larger map has as many cells, of several positions


def rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            rules[name] = function
        return function

    return add


# --- shapes: what moves elements moves their indices


def _moved(name: str) -> Callable[..., Any]:
    def apply(x: State, *args: Any, **kwargs: Any) -> Any:
        function = getattr(torch.Tensor, name, None) or getattr(torch, name)
        with torch._C.DisableTorchFunctionSubclass():
            found = function(x.index, *args, **kwargs)
        if isinstance(found, (tuple, list)):
            return tuple(x.with_index(each) for each in found)
        return x.with_index(found)

    return apply


for _name in (
    "reshape", "permute", "transpose", "flatten", "unflatten", "unbind", "chunk", "split", "squeeze", "unsqueeze",
    "expand", "expand_as", "roll", "flip", "narrow", "select", "index_select", "movedim", "swapaxes", "contiguous",
    "__getitem__", "repeat", "tensor_split", "T", "mT", "clone", "repeat_interleave", "view_as", "reshape_as",
):  # fmt: skip
    rules[_name] = _moved(_name)


@rule("view")
def view(x: State, *shape: Any) -> State:
    shape = tuple(shape[0]) if isinstance(shape[0], (tuple, list)) else shape
    return x.with_index(x.index.reshape(shape))


for _name in (
    "to", "type_as", "float", "detach", "dropout", "dropout_", "feature_dropout", "dropout2d", "alpha_dropout", "type",
    "cpu", "requires_grad_", "double", "half", "bfloat16",
):  # fmt: skip

    def _unchanged(x: State, *args: Any, **kwargs: Any) -> State:
        return x

    rules[_name] = _unchanged


def _plain(name: str) -> Callable[..., Any]:
    def apply(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            found = getattr(torch.Tensor, name)
            return found(x, *args, **kwargs) if callable(found) else found.__get__(x)

    return apply


for _name in (
    "shape", "ndim", "dtype", "device", "is_cuda", "requires_grad", "size", "dim", "numel", "is_floating_point",
    "is_contiguous", "stride", "layout", "is_meta", "is_mps", "names", "is_nested", "__len__", "grad_fn", "is_sparse",
    "is_quantized", "element_size", "is_complex", "new_zeros", "new_ones", "new_tensor", "new_full", "new_empty", "is_leaf", "get_device",
):  # fmt: skip
    rules[_name] = _plain(_name)


@rule("pad")
def pad(x: State, sizes: Sequence[int], mode: str = "constant", value: float | None = None) -> State:
    if not any(sizes):
        return x
    if mode != "constant" or value:
        raise InputError(f"there is no rule for padding with mode {mode} and value {value}")
    x = x.settled()
    zero = len(x.second)
    index = F.pad(x.index, list(sizes), value=zero * CHANNELS)
    shape = [1] * index.ndim
    for dim in x.channel_dims:
        shape[dim] = index.shape[dim]
    channel = index % CHANNELS
    for dim in range(index.ndim):  # the channels of what is padded
        if dim not in x.channel_dims:
            channel = channel.amax(dim, keepdim=True)
    index = (index // CHANNELS) * CHANNELS + channel
    return State.of(index, F.pad(x.second, (0, 1, 0, 1)), F.pad(x.average, (0, 1)), F.pad(x.near, (0, 0, 0, 1)))


@rule("cat", "concat", "concatenate")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> State:
    like = next(each for each in tensors if isinstance(each, State))
    states = []
    for each in tensors:
        if not isinstance(each, State):
            model = State.of(like.index.narrow(dim, 0, 1).expand(each.shape), like.second)
            each = lifted(each, model)
        states.append(each)
    dim = dim % like.index.ndim
    if all(each.second is like.second and each.function is like.function for each in states):
        return like.with_index(torch.cat([each.index for each in states], dim))
    states = [each.settled() for each in states]
    if dim in like.channel_dims:
        return _side_by_side(states, dim)
    start, indices = 0, []
    for each in states:
        indices.append(each.index + start * CHANNELS)
        start += len(each.second)
    near = max(each.near.shape[1] for each in states)
    nears = [F.pad(each.near, (0, near - each.near.shape[1])) for each in states]
    second = torch.block_diag(*[each.second for each in states])
    mean = torch.cat([each.average for each in states])
    groups = torch.cat([torch.full((len(each.second),), k) for k, each in enumerate(states)])
    second = torch.where(groups[:, None] == groups[None], second, torch.outer(mean, mean))
    return State.of(torch.cat(indices, dim), second, mean, torch.cat(nears))


def _side_by_side(states: list[State], dim: int) -> State:
    """Concatenation of channels: the mean of their moments, weighted by their numbers."""
    total = sum(each.index.shape[dim] for each in states)
    result = None
    for each in states:
        each = each.unmixed()
        share = each.index.shape[dim] / total
        index = each.index
        for d in {dim, *each.channel_dims}:
            index = index.narrow(d, 0, 1)
        scaled = State.of(index, each.second * share, each.average * share, each.near * share)
        result = scaled if result is None else _sum(result, scaled, independent=False)
    assert result is not None
    start, channels = 0, []
    for each in states:
        channels.append(each.index % CHANNELS + start)
        start += int(channels[-1].amax()) + 1
    index = (result.index // CHANNELS) * CHANNELS + torch.cat(channels, dim)
    return State.of(index, result.second, result.average, result.near)


@rule("stack")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> State:
    """Along a new dimension: of positions, or of channels where a model takes pairs of channels apart."""
    states = [each if isinstance(each, State) else lifted(each, tensors[0]) for each in tensors]
    dim = dim % (states[0].index.ndim + 1)
    wide = [each.with_index(each.index.unsqueeze(dim)) for each in states]
    first = [each.index.reshape(-1)[0] % CHANNELS for each in states]
    if len(set(map(int, first))) == 1:
        return cat(wide, dim)
    found = _side_by_side([each.settled() for each in wide], dim)
    sites = found.index // CHANNELS
    return found.with_index(sites * CHANNELS + torch.cat([each.index % CHANNELS for each in wide], dim))


# --- elementwise

for _name in (
    "relu", "gelu", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "relu6", "leaky_relu", "elu", "mish", "softplus",
    "hardtanh", "selu", "celu", "clamp", "exp", "abs", "square", "neg", "pow", "sqrt", "rsqrt", "softsign", "threshold",
    "log1p", "clip", "gelu_", "reciprocal",
):  # fmt: skip

    def _elementwise(x: State, *args: Any, _name: str = _name, **kwargs: Any) -> State:
        kwargs.pop("inplace", None)
        args = tuple(each for each in args if not isinstance(each, bool))
        if _name == "relu" and x.function is None:  # whose moments have a closed form
            return State.of(x.index, x.second, x.average, x.near, torch.relu, x.gains)
        function = getattr(F, _name, None) or getattr(torch, _name)
        return x.then(lambda z: function(z, *args, **kwargs))

    rules[_name] = _elementwise


def _scalar(value: Any) -> float | None:
    """The number that all elements of a factor or summand are, else None."""
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, State):
        return None
    value = value.detach()
    first = value.reshape(-1)[0]
    return float(first) if bool((value == first).all()) else None


def _affine(x: State, factor: float, shift: float) -> State:
    if x.function is not None:
        return x.then(lambda z: factor * z + shift)
    second = factor**2 * x.second + factor * shift * (x.average[:, None] + x.average[None]) + shift**2
    near = factor**2 * x.near + 2 * factor * shift * x.average[:, None] + shift**2
    return State.of(x.index, second, factor * x.average + shift, near, None, x.gains if shift == 0 else None)


def _is_zero(x: State) -> bool:
    return not bool(x.second.diagonal().any()) and not bool(x.settled().second.any())


@rule("add", "iadd", "radd")
def add(x: Any, y: Any, *, alpha: float = 1) -> State:
    x, y = (x, y) if isinstance(x, State) else (y, x)
    if not isinstance(y, State):
        number = _scalar(y)
        if number is not None and (not isinstance(y, Tensor) or number == 0 or y.numel() == 1):
            number *= alpha
            return x if number == 0 else _affine(x, 1.0, number)
        y = lifted(y, x)
    if alpha != 1:
        y = _affine(y, alpha, 0.0)
    if _is_zero(y) and y.index.ndim <= x.index.ndim:
        return x
    if _is_zero(x) and x.index.ndim <= y.index.ndim:
        return y
    if x.second is y.second and same(x.index, y.index):
        f, g = x.function or (lambda z: z), y.function or (lambda z: z)
        return State.of(x.index, x.second, x.average, x.near, lambda z: f(z) + g(z), x.gains)
    return _sum(x.settled(), y.settled())


def _sum(x: State, y: State, *, independent: bool = True) -> State:
    index, a, b = joined(x, y)
    second = x.second[a][:, a] + y.second[b][:, b]
    near = _near_sum(x.near[a], y.near[b])
    mean_x, mean_y = x.average[a], y.average[b]
    if independent:
        cross = torch.outer(mean_x, mean_y)
        second = second + cross + cross.T
        near = near + 2 * (mean_x * mean_y)[:, None]
    return State.of(index, second, mean_x + mean_y, near)


def _near_sum(a: Tensor, b: Tensor) -> Tensor:
    lags = min(a.shape[1], b.shape[1])
    return a[:, :lags] + b[:, :lags]


@rule("sub", "isub", "subtract")
def sub(x: Any, y: Any) -> State:
    return add(x, y * -1 if not isinstance(y, State) else _affine(y, -1.0, 0.0))


@rule("rsub")
def rsub(x: State, y: Any) -> State:
    return add(_affine(x, -1.0, 0.0), y)


@rule("mul", "imul", "rmul", "multiply")
def mul(x: Any, y: Any) -> State:
    x, y = (x, y) if isinstance(x, State) else (y, x)
    if not isinstance(y, State):
        number = _scalar(y)
        if number is not None:
            return x if number == 1 else _affine(x, number, 0.0)
        y = lifted(y, x)
    if x.second is y.second and same(x.index, y.index):
        f, g = x.function or (lambda z: z), y.function or (lambda z: z)
        return State.of(x.index, x.second, x.average, x.near, lambda z: f(z) * g(z), x.gains)
    x, y = x.settled(), y.settled()
    index, a, b = joined(x, y)
    near_x, near_y = x.near[a], y.near[b]
    lags = max(near_x.shape[1], near_y.shape[1])
    # a factor without near positions, such as a gate, is the same for all of them
    near_x = near_x if near_x.shape[1] == lags else x.second.diagonal()[a][:, None].expand(-1, lags)
    near_y = near_y if near_y.shape[1] == lags else y.second.diagonal()[b][:, None].expand(-1, lags)
    return State.of(index, x.second[a][:, a] * y.second[b][:, b], x.average[a] * y.average[b], near_x * near_y)


@rule("addcmul")
def addcmul(x: Any, y: Any, z: Any, *, value: float = 1) -> State:
    factors = [each for each in (y, z) if not isinstance(each, State)]
    if factors and _scalar(factors[0]) == 0:  # x may be a bias, then the result is of its values
        return x if isinstance(x, State) else add(mul(y, z), x)
    return add(x, mul(mul(y, z), value))


@rule("div", "truediv", "itruediv", "true_divide")
def div(x: Any, y: Any) -> State:
    if isinstance(y, State):
        return mul(x, y.then(torch.reciprocal))
    return mul(x, 1 / y)


@rule("rdiv", "rtruediv")
def rdiv(x: State, y: Any) -> State:
    return mul(x.then(torch.reciprocal), y)


# --- layers


def mean_square(values: Tensor) -> float:
    return float(values.detach().float().square().mean())


def _gain(weight: Tensor, fan_in: int) -> float:
    return fan_in * mean_square(weight)


def _biased(x: State, bias: Tensor | None) -> State:
    if bias is None:
        return x
    bias = bias.detach().double()
    square, mean = float(bias.square().mean()), float(bias.mean())
    return State.of(x.index, x.second + square, x.average + mean, x.near + square)


@rule("linear")
def linear(x: State, weight: Tensor, bias: Tensor | None = None) -> State:
    last = x.index.ndim - 1
    if last not in x.channel_dims and x.index.shape[-1] > 1:
        return _over_positions(x, weight, bias)
    x = x.unmixed()
    rows = x.index[..., :1]
    others = rows % CHANNELS
    others = (
        torch.unique(others, return_inverse=True)[1]
        if others.numel() and bool((others != others.reshape(-1)[0]).any())
        else 0
    )
    index = (rows // CHANNELS) * CHANNELS + others * len(weight) + torch.arange(len(weight))
    gain = _gain(weight, weight.shape[1])
    return _biased(State.of(index, gain * x.second, None, gain * x.near), bias)


def _over_positions(x: State, weight: Tensor, bias: Tensor | None, dim: int = -1) -> State:
    """A linear map of positions, the same for every channel: the moments of its own weights' sums."""
    x = x.settled()
    dim = dim % x.index.ndim
    sites = x.sites.movedim(dim, -1)
    rows = sites.reshape(-1, sites.shape[-1])
    weight = weight.detach().to(x.second)
    # (rows, outputs, sites)
    P = x.second.new_zeros(len(rows), len(weight), len(x.second))
    for k, row in enumerate(rows):
        P[k].index_add_(1, row, weight)
    P = P.reshape(-1, len(x.second))
    second, mean = P @ x.second @ P.T, P @ x.average
    if bias is not None:
        b = bias.detach().to(second).repeat(len(rows))
        second = second + torch.outer(b, b) + torch.outer(mean, b) + torch.outer(b, mean)
        mean = mean + b
    shape = (*sites.shape[:-1], len(weight))
    index = torch.arange(len(P)).view(shape).movedim(-1, dim) * CHANNELS
    channel = x.index.narrow(dim, 0, 1) % CHANNELS
    return State.of(index + channel, second, mean)


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
    gain = _gain(weight, weight[0].numel())
    found = State.of(new_index(sites, len(weight), 1), gain * second, None, gain * near)
    if weight.shape[1] == 1 and groups > 1 and bias is None:
        found.gains = _depthwise_gains(found, near, weight.shape[2] * weight.shape[3])
    return _biased(found, bias)


def _depthwise_gains(x: State, near: Tensor, taps: int) -> tuple[tuple[float, float], ...]:
    """Each channel has few weights of its own, whose sum is the factor of a smooth map: its square is chi-squared."""
    diagonal = x.second.diagonal()
    if near.shape[1]:
        correlation = float(x.near[:, 0].sum() / diagonal.sum()) if float(diagonal.sum()) else 0.0
    else:
        sites = x.sites[:, 0]
        if sites.shape[2] < 2:
            return ((1.0, 1.0),)
        pairs = x.second[sites[:, :, :-1], sites[:, :, 1:]]
        correlation = float(pairs.mean() / diagonal.mean()) if float(diagonal.sum()) else 0.0
    shared = min(max(correlation, 0.0), 1.0) * (1 - 1 / taps) + 1 / taps
    # nodes and weights of the quadrature of z² with five points
    nodes = ((8 / 15, 0.0), (0.4441519, 1.8377223), (0.0225147, 8.1622777))
    return tuple((weight, shared * square + 1 - shared) for weight, square in nodes)


@rule("conv1d")
def conv1d(x: State, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
           groups: int = 1) -> State:  # fmt: skip
    def pair(value: Any) -> tuple[int, int]:
        return (value[0] if isinstance(value, tuple) else value), 0

    if 1 in x.channel_dims and 2 not in x.channel_dims:
        wide = x.with_index(x.index[..., None])
        along = [pair(each)[0] for each in (stride, padding, dilation)]
        found = conv2d(wide, weight[..., None], bias, (along[0], 1), (along[1], 0), (along[2], 1), groups)
        return found.with_index(found.index[..., 0])
    # over the channels of a pooled map (ECA): its neighbors are as independent as any
    x = x.settled()
    gain = _gain(weight, weight[0].numel())
    return _biased(State.of(x.index, gain * x.second, None), bias)


class Window:
    """A kernel that slides over the sites of a map. Inputs of a linear map are independent channels or summed positions."""

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
        if grid == tuple(sites.shape[1:]):
            return self._exact(settled, sites, height, width)
        return self._coarse(settled, sites, grid, height, width)

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

    def _exact(self, x: State, sites: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
        outside = len(x.second)
        second = F.pad(x.second, (0, 1, 0, 1))
        taps = self.taps(sites, height, width, outside)
        total = second.new_zeros(len(taps[0]), len(taps[0]))
        for tap in taps:
            total += second[tap][:, tap]
        found = torch.arange(len(total)).view(len(sites), 1, height, width)
        return total / len(taps), x.near.new_zeros(len(total), 0), found

    def _coarse(
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
        return _regridded(second, near[:, lags:], n, grid, height, width)


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
    return len(torch.unique(sites[0, :, 0])), len(torch.unique(sites[0, 0, :]))


def places_of(sites: Tensor, grid: tuple[int, int]) -> Tensor:
    """(n, *grid): the sites of a map, each once."""
    rows, columns = ((torch.arange(g) + 0.5) * s / g for g, s in zip(grid, sites.shape[1:], strict=True))
    return sites[:, rows.long()][:, :, columns.long()]


def _regridded(
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
    channels = x.index.shape[1]
    if grid == tuple(sites.shape[1:]):
        outside = len(x.second)
        taps = torch.stack(window.taps(sites, height, width, outside), 1)
        weight = (taps != outside).to(x.second)
        weight = weight / (taps.shape[1] if count_include_pad else weight.sum(1, keepdim=True))
        P = x.second.new_zeros(len(taps), outside + 1).scatter_add_(1, taps, weight)[:, :-1]
        found = torch.arange(len(P)).view(len(sites), 1, height, width)
        return State.of(new_index(found, channels, 1), P @ x.second @ P.T, P @ x.average)
    second, near, found = window._coarse(x, sites, grid, height, width)
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
    """A rising function of Gaussian values has its largest value where they have: values of a window are taken for equally
    correlated, so that the largest is a shared part plus the largest of independent ones."""
    window = Window.of(kernel_size, stride, padding, dilation)
    raw = State.of(x.index, x.second, x.average, x.near)
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
    result = State.of(
        new_index(found, x.index.shape[1], 1), centered + torch.outer(new_mean, new_mean), new_mean,
        centered_near + new_mean.square()[:, None], x.function, x.gains,
    )  # fmt: skip
    return result


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
    height, width = x.index.shape[-2:]
    size = (size[0] or height, size[1] or width)
    if size == (height, width):
        return x
    if size == (1, 1):
        return mean(x, (-2, -1), keepdim=True)
    if height % size[0] == 0 and width % size[1] == 0:
        return avg_pool2d(x, (height // size[0], width // size[1]))
    if height < size[0] and size[0] % height == 0:
        return x.with_index(x.index.repeat_interleave(size[0] // height, -2).repeat_interleave(size[1] // width, -1))
    raise InputError(f"there is no rule for adaptive_avg_pool2d from {(height, width)} to {size}")


@rule("sum")
def total(x: State, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> State:
    dims = [d % x.index.ndim for d in ((dim,) if isinstance(dim, int) else dim)]
    return _affine(mean(x, dims, keepdim), math.prod(x.index.shape[d] for d in dims), 0.0)


@rule("mean")
def mean(x: State, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> State:
    """Over positions, or over one of several dimensions of channels, which are independent."""
    dims = sorted(d % x.index.ndim for d in ((dim,) if isinstance(dim, int) else dim))
    x = x.unmixed()
    over = [d for d in dims if d in x.channel_dims]
    if len(over) == len(x.channel_dims):
        raise InputError("there is no rule for a mean over all channels")
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
        second = products + (second - products) / math.prod(x.index.shape[d] for d in over)
    shape = [1 if d in dims else sites.shape[d] for d in range(sites.ndim)]
    channel = x.index
    for d in dims:
        channel = channel.narrow(d, 0, 1)
    index = torch.arange(len(rows)).view(shape) * CHANNELS + channel % CHANNELS
    if not keepdim:
        for d in reversed(dims):
            index = index.squeeze(d)
    return State.of(index, second, average)


@rule("amax")
def amax(x: State, dim: Any, keepdim: bool = False) -> State:
    raise InputError("there is no rule for a largest value over a whole map")


# --- normalization


@rule("layer_norm")
def layer_norm(x: State, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5) -> State:  # fmt: skip
    return _scaled(_normalized(x.unmixed(), eps, centered=True), weight, bias)


@rule("rms_norm")
def rms_norm(x: State, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> State:
    return _scaled(_normalized(x.unmixed(), eps or 1e-6, centered=False), weight, None)


@rule("normalize")
def normalize(x: State, p: float = 2.0, dim: int = 1, eps: float = 1e-12, **kwargs: Any) -> State:
    if p != 2:
        raise InputError("there is no rule for normalize but by the Euclidean norm")
    if dim % x.index.ndim not in x.channel_dims:  # by the norm over positions, as attention over channels has it
        x = x.settled()
        rows = x.sites.movedim(dim, -1).reshape(-1, x.sites.shape[dim])
        scale = torch.ones(len(x.second), dtype=x.second.dtype)
        for row in rows:
            scale[row] = x.second.diagonal()[row].sum().sqrt().clamp(min=1e-18)
        return State.of(x.index, x.second / torch.outer(scale, scale), x.average / scale)
    return _affine(_normalized(x.unmixed(), 0.0, centered=False), x.index.shape[dim] ** -0.5, 0.0)


def _normalized(x: State, eps: float, *, centered: bool) -> State:
    second, near, average = x.second, x.near, x.average
    if centered:
        second, near = second - torch.outer(average, average), near - average.square()[:, None]
        average = torch.zeros_like(average)
    scale = (second.diagonal().clamp(min=0) + eps).sqrt().clamp(min=1e-18)
    return State.of(x.index, second / torch.outer(scale, scale), average / scale, near / scale.square()[:, None])


def _scaled(x: State, weight: Tensor | None, bias: Tensor | None) -> State:
    """Factors and summands of a normalization, one for each channel."""
    if weight is not None:
        number = _scalar(weight)
        square = mean_square(weight)
        if number is None:
            x = State.of(x.index, square * x.second, float(weight.detach().mean()) * x.average, square * x.near)
        elif number != 1:
            x = _affine(x, number, 0.0)
    if bias is not None and bool(bias.any()):
        x = _sum(
            x.settled(), _biased(State.of(x.index, torch.zeros_like(x.second), None, torch.zeros_like(x.near)), bias)
        )
    return x


@rule("batch_norm")
def batch_norm(x: State, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
               bias: Tensor | None = None, training: bool = False, momentum: float = 0.1,
               eps: float = 1e-5) -> State:  # fmt: skip
    if training or running_mean is None or running_var is None:
        raise InputError("there is no rule for batch_norm with the statistics of a batch")
    x = add(x, -running_mean)
    number = _scalar(running_var)
    if number is None:
        raise InputError("there is no rule for a batch_norm that has been trained")
    return _scaled(_affine(x, (number + eps) ** -0.5, 0.0), weight, bias)


@rule("group_norm")
def group_norm(x: State, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5) -> State:  # fmt: skip
    """Groups of many channels have the moments of all: one scale and mean per input."""
    x = x.unmixed()
    sites = x.sites
    rows = sites.reshape(len(sites), -1)
    n = len(x.second)
    P = (
        x.second.new_zeros(len(rows), n).scatter_add_(1, rows, torch.full_like(rows, 1, dtype=x.second.dtype))
        / rows.shape[1]
    )
    owner = torch.empty(n, dtype=torch.long)
    for k, row in enumerate(rows):
        owner[row] = k
    average = (P @ x.average)[owner]
    second = (
        x.second - torch.outer(x.average, average) - torch.outer(average, x.average) + torch.outer(average, average)
    )
    near = x.near - (2 * x.average * average - average.square())[:, None]
    scale = ((P @ second.diagonal())[owner].clamp(min=0) + eps).sqrt().clamp(min=1e-18)
    found = State.of(
        x.index, second / torch.outer(scale, scale), (x.average - average) / scale, near / scale.square()[:, None]
    )
    return _scaled(found, weight, bias)
