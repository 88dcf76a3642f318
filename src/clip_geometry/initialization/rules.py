"""What each operation does to the second moments of a wide fresh network; weights enter by their mean squares."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from clip_geometry.initialization.state import CHANNELS, State, joined, lifted, same
from clip_geometry.registry import InputError

rules = State.rules


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
            found = function(x.codes, *args, **kwargs)
        if isinstance(found, (tuple, list)):
            return tuple(x.with_codes(each) for each in found)
        return x.with_codes(found)

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
    return x.with_codes(x.codes.reshape(shape))


for _name in (
    "to", "type_as", "float", "detach", "dropout", "dropout_", "feature_dropout", "dropout2d", "alpha_dropout", "type",
    "cpu", "requires_grad_", "double", "half", "bfloat16",
):  # fmt: skip
    rules[_name] = lambda x, *args, **kwargs: x


def _plain(name: str) -> Callable[..., Any]:
    def apply(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            found = getattr(torch.Tensor, name)
            return found(x, *args, **kwargs) if callable(found) else found.__get__(x)

    return apply


for _name in (
    "shape", "ndim", "dtype", "device", "is_cuda", "requires_grad", "size", "dim", "numel", "is_floating_point",
    "is_contiguous", "stride", "layout", "is_meta", "is_mps", "names", "is_nested", "__len__", "grad_fn", "is_sparse",
    "is_quantized", "element_size", "is_complex", "new_zeros", "new_ones", "new_tensor", "new_full", "new_empty",
    "is_leaf", "get_device",
):  # fmt: skip
    rules[_name] = _plain(_name)


@rule("pad")
def pad(x: State, sizes: Sequence[int], mode: str = "constant", value: float | None = None) -> State:
    if not any(sizes):
        return x
    if mode not in ("constant", "replicate") or (value and value != -math.inf):
        raise InputError(f"there is no rule for padding with mode {mode} and value {value}")
    x = x.settled()
    repeated = mode == "replicate" or bool(value)  # where the largest value is taken next, -inf is as the edge
    for k in range(len(sizes) // 2):
        dim, before, after = x.codes.ndim - 1 - k, sizes[2 * k], sizes[2 * k + 1]
        size, count = x.codes.shape[dim], before + after
        if not before and not after:
            continue
        if dim in x.channel_dims:
            raise InputError("there is no rule for a padding of channels")
        lines = x.sites.movedim(dim, 0).reshape(size, -1)
        # zeros are sites of their own, one for each slice; a cell of a coarse map is larger, and its edge is repeated
        if repeated or len(torch.unique(lines, dim=0)) < size:
            places = torch.arange(-before, size + after).clamp(0, size - 1)
            x = x.with_codes(x.codes.index_select(dim, places))
            continue
        shape = [-1 if d == dim else 1 for d in range(x.codes.ndim)]
        zeros = (len(x.second) + torch.arange(count)).view(shape) * CHANNELS + x.codes.narrow(dim, 0, 1) % CHANNELS
        codes = torch.cat([zeros.narrow(dim, 0, before), x.codes, zeros.narrow(dim, before, after)], dim)
        second, average = F.pad(x.second, (0, count, 0, count)), F.pad(x.average, (0, count))
        x = State.of(codes, second, average, F.pad(x.near, (0, 0, 0, count)))
    return x


@rule("cat", "concat", "concatenate")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> State:
    like = next(each for each in tensors if isinstance(each, State))
    states = []
    for each in tensors:
        if not isinstance(each, State):
            model = State.of(like.codes.narrow(dim, 0, 1).expand(each.shape), like.second)
            each = lifted(each, model)
        states.append(each)
    dim = dim % like.codes.ndim
    if all(each.second is like.second and each.function is like.function for each in states):
        return like.with_codes(torch.cat([each.codes for each in states], dim))
    states = [each.settled() for each in states]
    if dim in like.channel_dims:
        return _side_by_side(states, dim)
    start, indices = 0, []
    for each in states:
        indices.append(each.codes + start * CHANNELS)
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
    total = sum(each.codes.shape[dim] for each in states)
    result = None
    for each in states:
        each = each.unmixed()
        share = each.codes.shape[dim] / total
        index = each.codes
        for d in {dim, *each.channel_dims}:
            index = index.narrow(d, 0, 1)
        scaled = State.of(index, each.second * share, each.average * share, each.near * share)
        result = scaled if result is None else _sum(result, scaled, independent=False)
    assert result is not None
    start, channels = 0, []
    for each in states:
        channels.append(each.codes % CHANNELS + start)
        start += int(channels[-1].amax()) + 1
    index = (result.codes // CHANNELS) * CHANNELS + torch.cat(channels, dim)
    return State.of(index, result.second, result.average, result.near)


@rule("stack")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> State:
    """Along a new dimension: of positions, or of channels where a model takes pairs of channels apart."""
    like: Any = next(each for each in tensors if isinstance(each, State))
    states: list[Any] = [each if isinstance(each, State) else lifted(each, like) for each in tensors]
    dim = dim % (states[0].codes.ndim + 1)
    wide = [each.with_codes(each.codes.unsqueeze(dim)) for each in states]
    first = [each.codes.reshape(-1)[0] % CHANNELS for each in states]
    if len(set(map(int, first))) == 1:
        return cat(wide, dim)
    found = _side_by_side([each.settled() for each in wide], dim)
    sites = found.codes // CHANNELS
    return found.with_codes(sites * CHANNELS + torch.cat([each.codes % CHANNELS for each in wide], dim))


# --- elementwise

for _name in (
    "relu", "gelu", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "relu6", "leaky_relu", "elu", "mish",
    "softplus", "hardtanh", "selu", "celu", "clamp", "exp", "abs", "square", "neg", "pow", "sqrt", "rsqrt", "softsign",
    "threshold", "log1p", "clip", "gelu_", "reciprocal",
):  # fmt: skip

    def _elementwise(x: State, *args: Any, _name: str = _name, **kwargs: Any) -> State:
        kwargs.pop("inplace", None)
        args = tuple(each for each in args if not isinstance(each, bool))
        if _name == "relu" and x.function is None:  # whose moments have a closed form
            return State.of(x.codes, x.second, x.average, x.near, torch.relu, x.gains, x.draw)
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


def affine(x: State, factor: float, shift: float) -> State:
    if factor == 0:  # as the last normalization of a residual branch often has it
        moment = torch.full_like(x.second, shift**2)
        return State.of(x.codes, moment, torch.full_like(x.average, shift), torch.full_like(x.near, shift**2))
    if x.function is not None or x.draw is not None:
        return x.then(lambda z: factor * z + shift)
    second = factor**2 * x.second + factor * shift * (x.average[:, None] + x.average[None]) + shift**2
    near = factor**2 * x.near + 2 * factor * shift * x.average[:, None] + shift**2
    return State.of(x.codes, second, factor * x.average + shift, near, None, x.gains if shift == 0 else None)


def _is_zero(x: State) -> bool:
    return not bool(x.second.diagonal().any()) and not bool(x.settled().second.any())


@rule("add", "iadd", "radd")
def add(x: Any, y: Any, *, alpha: float = 1) -> State:
    x, y = (x, y) if isinstance(x, State) else (y, x)
    if not isinstance(y, State):
        number = _scalar(y)
        if number is not None and (not isinstance(y, Tensor) or number == 0 or y.numel() == 1):
            number *= alpha
            return x if number == 0 else affine(x, 1.0, number)
        y = lifted(y, x)
    if alpha != 1:
        y = affine(y, alpha, 0.0)
    if _is_zero(y) and y.codes.ndim <= x.codes.ndim:
        return x
    if _is_zero(x) and x.codes.ndim <= y.codes.ndim:
        return y
    if x.second is y.second and same(x.codes, y.codes):
        f, g = x.function or (lambda z: z), y.function or (lambda z: z)
        return State.of(x.codes, x.second, x.average, x.near, lambda z: f(z) + g(z), x.gains, x.draw)
    return _sum(x.settled(), y.settled())


def _sum(x: State, y: State, *, independent: bool = True) -> State:
    index, a, b = joined(x, y)
    second = x.second[a][:, a] + y.second[b][:, b]
    lags = min(x.near.shape[1], y.near.shape[1])
    near = x.near[a, :lags] + y.near[b, :lags]
    mean_x, mean_y = x.average[a], y.average[b]
    if independent:
        cross = torch.outer(mean_x, mean_y)
        second = second + cross + cross.T
        near = near + 2 * (mean_x * mean_y)[:, None]
    return State.of(index, second, mean_x + mean_y, near)


@rule("sub", "isub", "subtract")
def sub(x: Any, y: Any) -> State:
    return add(x, y * -1 if not isinstance(y, State) else affine(y, -1.0, 0.0))


@rule("rsub")
def rsub(x: State, y: Any) -> State:
    return add(affine(x, -1.0, 0.0), y)


@rule("mul", "imul", "rmul", "multiply")
def mul(x: Any, y: Any) -> State:
    x, y = (x, y) if isinstance(x, State) else (y, x)
    if not isinstance(y, State):
        number = _scalar(y)
        if number is not None:
            return x if number == 1 else affine(x, number, 0.0)
        y = lifted(y, x)
    if x.second is y.second and same(x.codes, y.codes):
        f, g = x.function or (lambda z: z), y.function or (lambda z: z)
        return State.of(x.codes, x.second, x.average, x.near, lambda z: f(z) * g(z), x.gains, x.draw)
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


def gain_of(weight: Tensor, fan_in: int) -> float:
    return fan_in * mean_square(weight)


def biased(x: State, bias: Tensor | None) -> State:
    if bias is None:
        return x
    bias = bias.detach().double()
    square, mean = float(bias.square().mean()), float(bias.mean())
    return State.of(x.codes, x.second + square, x.average + mean, x.near + square)


@rule("linear")
def linear(x: State, weight: Tensor, bias: Tensor | None = None) -> State:
    last = x.codes.ndim - 1
    if last not in x.channel_dims and x.codes.shape[-1] > 1:
        return _over_positions(x, weight, bias)
    x = x.unmixed()
    rows = x.codes[..., :1]
    others = rows % CHANNELS
    others = (
        torch.unique(others, return_inverse=True)[1]
        if others.numel() and bool((others != others.reshape(-1)[0]).any())
        else 0
    )
    index = (rows // CHANNELS) * CHANNELS + others * len(weight) + torch.arange(len(weight))
    gain = gain_of(weight, weight.shape[1])
    return biased(State.of(index, gain * x.second, None, gain * x.near), bias).fresh(len(weight))


def _over_positions(x: State, weight: Tensor, bias: Tensor | None) -> State:
    """A linear map of positions, the same for every channel: the moments of its own weights' sums."""
    x = x.settled()
    sites = x.sites
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
    index = torch.arange(len(P)).view(*sites.shape[:-1], len(weight)) * CHANNELS
    return State.of(index + x.codes[..., :1] % CHANNELS, second, mean)


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
    if dim % x.codes.ndim not in x.channel_dims:  # by the norm over positions, as attention over channels has it
        x = x.settled()
        rows = x.sites.movedim(dim, -1).reshape(-1, x.sites.shape[dim])
        scale = torch.ones(len(x.second), dtype=x.second.dtype)
        for row in rows:
            scale[row] = x.second.diagonal()[row].sum().sqrt().clamp(min=1e-18)
        return State.of(x.codes, x.second / torch.outer(scale, scale), x.average / scale)
    return affine(_normalized(x.unmixed(), 0.0, centered=False), x.codes.shape[dim] ** -0.5, 0.0)


def _normalized(x: State, eps: float, *, centered: bool) -> State:
    second, near, average = x.second, x.near, x.average
    if centered:
        second, near = second - torch.outer(average, average), near - average.square()[:, None]
        average = torch.zeros_like(average)
    scale = (second.diagonal().clamp(min=0) + eps).sqrt().clamp(min=1e-18)
    return State.of(x.codes, second / torch.outer(scale, scale), average / scale, near / scale.square()[:, None])


def _scaled(x: State, weight: Tensor | None, bias: Tensor | None) -> State:
    """Factors and summands of a normalization, one for each channel."""
    if weight is not None:
        number = _scalar(weight)
        square = mean_square(weight)
        if number is None:
            x = State.of(x.codes, square * x.second, float(weight.detach().mean()) * x.average, square * x.near)
        elif number != 1:
            x = affine(x, number, 0.0)
    if bias is not None and bool(bias.any()):
        x = _sum(
            x.settled(), biased(State.of(x.codes, torch.zeros_like(x.second), None, torch.zeros_like(x.near)), bias)
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
    return _scaled(affine(x, (number + eps) ** -0.5, 0.0), weight, bias)


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
        x.codes, second / torch.outer(scale, scale), (x.average - average) / scale, near / scale.square()[:, None]
    )
    return _scaled(found, weight, bias)
