"""Attention of a wide fresh network: heads are draws of Gaussian queries and keys."""

import math
from typing import Any

import torch
from torch import Tensor

from clip_geometry.initialization import windows
from clip_geometry.initialization.moments import root
from clip_geometry.initialization.rules import affine, linear, mul, rule
from clip_geometry.initialization.state import CHANNELS, State, lifted
from clip_geometry.registry import InputError

assert windows  # its rules come before those of logits
BRANCHES = 4
DRAWS = 4  # of heads, over which the products of attention weights are averaged


class Logits(State):
    """Products of queries and keys, before the softmax."""

    parts: tuple[State, State, float]
    bias: Tensor | None
    is_weights: bool
    factor: float


def _logits(
    query: State, key: State, scale: float, bias: Tensor | None, weights: bool = False, factor: float = 1.0,
    shape: Any = None,
) -> Logits:  # fmt: skip
    shape = (*query.codes.shape[:-1], key.codes.shape[-2]) if shape is None else shape
    self = torch.zeros(()).expand(shape).as_subclass(Logits)
    self.parts, self.bias, self.is_weights, self.factor = (query, key, scale), bias, weights, factor
    self.codes, self.function = torch.zeros((), dtype=torch.long).expand(shape), None
    return self


def attended(query: State, key: State, value: State, scale: float, bias: Tensor | None = None) -> State:
    """softmax(scale · q kᵀ + bias) v. query, key, value: (…, heads, tokens, channels)."""
    if query.codes.ndim - 1 not in query.channel_dims:
        return _attended_channels(query, key, value, scale)
    query, key, value = (each.unmixed() for each in (query, key, value))
    # (groups, tokens) of each; heads have the sites of the first
    q, k, v = (_tokens(each) for each in (query, key, value))
    groups, n = q.shape
    if bias is None:
        q, k, v, back, bias = _distinct(q, k, v)
    else:
        back = torch.arange(n).expand(groups, n)
    n = q.shape[1]
    heads = query.codes.shape[-3] if query.codes.ndim > 3 else 1
    width = query.codes.shape[-1]
    generator = State.generator or torch.Generator().manual_seed(0)
    kind = value.second
    root_q, root_k = root(query.second), root(key.second)
    added = None
    if bias is not None:
        bias = (
            bias.detach().to(kind)
            if bias.dtype != torch.bool
            else torch.zeros(bias.shape).masked_fill(~bias, -math.inf).to(kind)
        )
        shape = (*query.codes.shape[:-2], n, k.shape[1]) if query.codes.ndim > 3 else (groups, 1, n, k.shape[1])
        if query.codes.ndim == 3 and bias.ndim == 3:
            bias = bias[:, None]
        added = bias.expand(torch.broadcast_shapes(bias.shape, shape)).reshape(-1, heads, n, k.shape[1])
        added = added.expand(groups, *added.shape[1:])
    values = value.second[v.reshape(-1)][:, v.reshape(-1)].view(groups, v.shape[1], groups, v.shape[1])
    total = kind.new_zeros(groups, n, groups, n)
    means = kind.new_zeros(groups, n)
    draws = min(DRAWS, max(heads, 2)) if n > 1 else 8
    for draw in range(draws):
        queries = root_q @ torch.randn(root_q.shape[1], width, generator=generator, dtype=kind.dtype)
        keys = root_k @ torch.randn(root_k.shape[1], width, generator=generator, dtype=kind.dtype)
        logits = scale * queries[q] @ keys[k].transpose(1, 2)
        if added is not None:
            logits = logits + added[:, draw % heads]
        A = logits.softmax(-1)
        half = torch.bmm(A, values.reshape(groups, v.shape[1], -1)).view(groups, n, groups, v.shape[1])
        half = half.permute(2, 3, 0, 1).reshape(groups, v.shape[1], -1)
        total += torch.bmm(A, half).view(groups, n, groups, n).permute(2, 3, 0, 1)
        means += (A * value.average[v][:, None, :]).sum(-1)
    total, means = total.reshape(groups * n, groups * n) / draws, means.reshape(-1) / draws
    # the result has the shape of the queries and the channels of the values
    lead = list(query.codes.shape[:-3])
    sites = back + n * torch.arange(groups)[:, None]
    sites = sites.view(*lead, 1, -1, 1) if query.codes.ndim > 3 else sites[..., None]
    near = total.diagonal()[:, None].expand(-1, query.near.shape[1])  # positions near each other attend to the same
    if value.codes.ndim > 3:
        channel = torch.arange(heads * value.codes.shape[-1]).view(heads, 1, -1)
    else:
        channel = torch.arange(value.codes.shape[-1])
    return State.of(sites * CHANNELS + channel, (total + total.T) / 2, means, near)


def _attended_channels(query: State, key: State, value: State, scale: float) -> State:
    """softmax(scale · q kᵀ) v where channels attend to channels. Each: (…, heads, channels, tokens).

    The logits of different pairs of channels are nearly independent Gaussians with the covariance
    c_ab = scale² Σ_mn Q_ab(m, n) K_ab(m, n) of inputs a and b, and a softmax over C of them leaves E A_a A_b of
    exp(c_ab) / C², so that the values' products come out times exp(c_ab) / C, but for those of their mean. Good for
    temperatures of about 1, with which these models begin: larger logits of few tokens are not Gaussian.
    """
    query, key, value = (each.unmixed() for each in (query, key, value))
    if query.codes.ndim < 3:
        raise InputError("there is no rule for attention over channels without a batch")
    inputs = len(query.codes)

    def counts(x: State) -> Tensor:  # (inputs, sites)
        rows = x.sites.expand(inputs, *x.sites.shape[1:]).reshape(inputs, -1)
        return x.second.new_zeros(inputs, len(x.second)).scatter_add_(
            1, rows, torch.ones_like(rows, dtype=torch.double)
        )

    if not torch.equal(query.sites, key.sites):
        raise InputError("there is no rule for attention over channels of one map to those of another")
    P = counts(query)
    covariance = scale**2 * P @ (query.second * key.second) @ P.T
    owner = counts(value).argmax(0)
    mean = torch.outer(value.average, value.average)
    grown = covariance.exp()[owner][:, owner] / query.codes.shape[-2]
    near = value.average.square()[:, None] + (value.near - value.average.square()[:, None]) * grown.diagonal()[:, None]
    return State.of(value.codes, mean + (value.second - mean) * grown, value.average, near)


def _distinct(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Queries and keys of distinct sites, the place of each query among them, and log numbers of the keys."""
    groups = len(q)
    every = torch.arange(q.shape[1]).expand(groups, -1)
    queries = [torch.unique(row, return_inverse=True) for row in q]
    keys = [torch.unique(row, return_counts=True) for row in k]
    if len({len(each[0]) for each in queries}) == 1 and len(queries[0][0]) < q.shape[1]:
        q, every = torch.stack([each[0] for each in queries]), torch.stack([each[1] for each in queries])
    bias = None
    same_keys = len(k.unique()) == len(v.unique()) and torch.equal(k - k.amin(), v - v.amin())
    if same_keys and len({len(each[0]) for each in keys}) == 1 and len(keys[0][0]) < k.shape[1]:
        shift = v.amin() - k.amin()
        k = torch.stack([each[0] for each in keys])
        v, bias = k + shift, torch.stack([each[1] for each in keys]).double().log()[:, None, None]
    return q, k, v, every, bias


def _tokens(x: State) -> Tensor:
    """(groups, tokens): sites of the first head and channel."""
    sites = x.codes[..., 0] // CHANNELS
    if x.codes.ndim > 3:
        sites = sites[..., 0, :]
    return sites.reshape(-1, sites.shape[-1])


@rule("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: State, key: State, value: State, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> State:  # fmt: skip
    scale = float(query.codes.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        size = query.codes.shape[-2], key.codes.shape[-2]
        attn_mask = torch.zeros(size).masked_fill(torch.ones(size).triu(1).bool(), -math.inf)
    return attended(query, key, value, scale, attn_mask)


@rule("matmul", "bmm", "rmatmul")
def matmul(x: Any, y: Any) -> State:
    if isinstance(x, Logits) and isinstance(y, State):
        query, key, scale = x.parts
        if not x.is_weights:
            raise InputError("there is no rule for attention without a softmax")
        found = attended(query, key, y, scale, x.bias)
        return found if x.factor == 1 else mul(found, x.factor)
    if isinstance(x, State) and isinstance(y, State):
        turned = y.with_codes(y.codes.transpose(-2, -1))
        last = x.codes.ndim - 1
        if (last in x.channel_dims) == (last in turned.channel_dims):
            return _logits(x, turned, 1.0, None)
    elif isinstance(x, State) and x.codes.ndim - 1 in x.channel_dims:
        return linear(x, y.mT if y.ndim > 1 else y[None])
    raise InputError("there is no rule for this matrix product of activations")


def _logits_rule(name: str) -> Any:
    plain = State.rules[name]

    def apply(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, Logits):
            if args and isinstance(args[0], Logits):
                x, args = args[0], (x, *args[1:])
            else:
                return plain(x, *args, **kwargs)
        query, key, scale = x.parts
        if name in KEPT:
            return x
        if name in MOVED:
            with torch._C.DisableTorchFunctionSubclass():
                index = getattr(torch.Tensor, MOVED[name])(x.codes, *args, **kwargs)
                bias = x.bias
                if bias is not None:
                    bias = getattr(torch.Tensor, MOVED[name])(bias.expand(x.codes.shape), *args, **kwargs)
            return _logits(query, key, scale, bias, x.is_weights, x.factor, index.shape)
        if name == "linear":  # heads mixed with one another: sums of independent ones
            gain = args[0].detach().square().sum(1).mean().sqrt().item()
            if x.is_weights:
                return _logits(query, key, scale, x.bias, True, x.factor * gain, x.codes.shape)
            return _logits(query, key, scale * gain, None if x.bias is None else x.bias * gain, shape=x.codes.shape)
        if name in ("mul", "div"):
            factor = args[0]
            if isinstance(factor, Tensor):
                factor = float(factor.detach().mean())
            factor = factor if name == "mul" else 1 / factor
            return _logits(query, key, scale * factor, None if x.bias is None else x.bias * factor, shape=x.codes.shape)
        if name == "add" and isinstance(args[0], Tensor) and not isinstance(args[0], State):
            bias = args[0].detach()
            return _logits(query, key, scale, bias if x.bias is None else x.bias + bias, shape=x.codes.shape)
        raise InputError(f"there is no rule for {name} of attention logits")

    return apply


KEPT = ("dropout", "float", "to", "type_as", "contiguous")
MOVED = {name: name for name in ("permute", "transpose", "unsqueeze", "squeeze", "flatten", "reshape", "unbind")}
MOVED["view"] = "reshape"
for _name in ("mul", "div", "add", "linear", *KEPT, *MOVED):
    _before, _after = State.rules[_name], _logits_rule(_name)
    State.rules.update({alias: _after for alias, known in State.rules.items() if known is _before})


@rule("softmax")
def softmax(x: State, dim: int = -1, *args: Any, **kwargs: Any) -> State:
    if not isinstance(x, Logits) and dim % x.codes.ndim in x.channel_dims and x.codes.shape[dim] <= BRANCHES:
        # over a few branches: fresh logits are small, and each has its equal share
        return affine(x, 0.0, 1 / x.codes.shape[dim])
    if isinstance(x, Logits) and dim % x.codes.ndim == x.codes.ndim - 1:
        query, key, scale = x.parts
        return _logits(query, key, scale, x.bias, True, shape=x.codes.shape)
    raise InputError("there is no rule for a softmax of anything but attention logits over the keys")


@rule("multi_head_attention_forward")
def multi_head_attention_forward(
    query: State, key: State, value: State, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None, bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float,
    out_proj_weight: Tensor, out_proj_bias: Tensor | None, *, training: bool = True, key_padding_mask: Any = None,
    need_weights: bool = True, attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
    average_attn_weights: bool = True, is_causal: bool = False, **other: Any,
) -> tuple[State, None]:  # fmt: skip
    if use_separate_proj_weight:
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        assert in_proj_weight is not None
        weights = in_proj_weight.chunk(3)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    projected = []
    for each, weight, bias in zip((query, key, value), weights, biases, strict=True):
        if not isinstance(each, State):
            each = lifted(each, query if isinstance(query, State) else key)
        found = linear(each, weight, bias)  # pyright: ignore[reportArgumentType]
        tokens, batch, width = found.codes.shape
        found = found.with_codes(found.codes.reshape(tokens, batch, num_heads, width // num_heads).permute(1, 2, 0, 3))
        projected.append(found)
    query, key, value = projected
    if key_padding_mask is not None:
        padded = torch.zeros(key_padding_mask.shape).masked_fill(key_padding_mask.bool(), -math.inf)[:, None, None]
        attn_mask = padded if attn_mask is None else attn_mask + padded
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros(attn_mask.shape).masked_fill(attn_mask, -math.inf)
    if attn_mask is not None and attn_mask.ndim == 3:
        attn_mask = attn_mask.view(-1, num_heads, *attn_mask.shape[1:])
    found = attended(query, key, value, (query.codes.shape[-1]) ** -0.5, attn_mask)
    index = found.codes.permute(2, 0, 1, 3)
    found = found.with_codes(index.reshape(*index.shape[:2], -1))
    return linear(found, out_proj_weight, out_proj_bias), None
