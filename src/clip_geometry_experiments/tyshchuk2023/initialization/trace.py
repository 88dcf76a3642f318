"""What each operation of a tower (embedding, norm, attention, MLP, …) gives for its inputs, in one forward pass.

An adapter for each kind of tower says where its operations lie in the model and, as far as wide-network theory goes,
what they do to rows; a tower that no adapter fits is refused.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clip_geometry.encoders.base import Encoder, Tokens
from clip_geometry.encoders.hf.text import TextEncoder, cls_pooling
from clip_geometry.encoders.open_clip import OpenClipEncoder
from clip_geometry.registry import InputError

__all__ = ["AffineMeans", "Norm", "Operation", "Trace", "trace"]

KNOWN = "open_clip's vision and text transformers and ModifiedResNet, transformers' BERT"


# --- operations and what they do to rows


@dataclass(frozen=True)
class Norm:
    """Layer normalization without its gain and bias, which follow as an `AffineMeans`."""

    eps: float


@dataclass(frozen=True)
class AffineMeans:
    """x ↦ W x + b, by the mean squares of the entries of W and b: all that a wide fresh network depends on."""

    fan_in: int
    weight: float
    bias: float = 0.0

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, *, fan_in: int, gain: Tensor | None = None) -> "AffineMeans":
        """The map with these weights. gain: (width,) factors on its result."""
        factor = 1.0 if gain is None else _mean_square(gain)
        return cls(fan_in, factor * _mean_square(weight), 0.0 if bias is None else factor * _mean_square(bias))

    @classmethod
    def linear(cls, linear: nn.Linear, gain: Tensor | None = None) -> "AffineMeans":
        return cls.of(linear.weight, linear.bias, fan_in=linear.in_features, gain=gain)


def _mean_square(values: Tensor) -> float:
    return float(values.detach().double().square().mean())


Step = Norm | AffineMeans | Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation; its rows are the input or the output of `module` (None: the tower's result).

    layer: 0 before the first block, then the number of the block, one more after the last. sources: indices of the
    operations whose sum it starts from, empty where theory says nothing. steps: what happens to the sum.
    """

    layer: int
    name: str
    module: nn.Module | None
    side: Literal["input", "output"] = "output"
    sources: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()

    def hook(self, keep: Callable[[Tensor], None]) -> Any:
        """Calls `keep` with the operation's rows in every forward pass, until the returned handle is removed."""
        module: Any = self.module
        if self.side == "input":
            return module.register_forward_pre_hook(lambda _, given: keep(given[0]))
        # attention of transformers also returns its weights
        return module.register_forward_hook(lambda _, __, out: keep(out[0] if isinstance(out, tuple) else out))


@dataclass(frozen=True, eq=False)
class TracedTower:
    """operations: in their order. last: what leads from them to the embeddings, None where nothing does.

    pooling: from a batch to the function that takes one row of each input from a hidden state.
    """

    operations: tuple[Operation, ...]
    pooling: Callable[[Any], Callable[[Tensor], Tensor]]
    last: Operation | None = None


@dataclass(frozen=True, eq=False)
class TransformerBlock:
    """Modules of one transformer block. attention, mlp: the two branches as they are added to the stream."""

    norms: tuple[Any, Any]
    attention: nn.Module
    mlp: nn.Module
    steps: tuple[Step, ...]
    end: nn.Module


# --- recording


@dataclass(frozen=True, eq=False)
class Trace:
    """operations: in the order in which the tower performs them. rows: (n, width) of each, the embeddings last.

    Rows are those of the token that becomes the embedding (class token, end of text, …); for ResNets, the mean over
    the positions of the feature map.
    """

    operations: tuple[Operation, ...]
    rows: tuple[Tensor, ...]


def trace(encoder: Encoder, modality: str, batches: Iterable[Any]) -> Trace:
    """Embeds the batches (stacked pixels, or Tokens) and keeps what every operation gave, as float32 on the CPU.

    Only n rows per operation are kept. Raises InputError where the tower is of no known kind.
    """
    encoder.require(modality)
    tower = tower_of(encoder, modality)
    embed = encoder.image_features if modality == "image" else encoder.text_features
    kept: list[list[Tensor]] = [[] for _ in (*tower.operations, tower.last)]
    for batch in batches:
        take = tower.pooling(batch)
        with ExitStack() as hooks:
            for operation, rows in zip(tower.operations, kept, strict=False):
                hooks.callback(operation.hook(partial(_keep, rows, take)).remove)
            kept[-1].append(embed(batch))
    rows = tuple(torch.cat(parts) for parts in kept)
    if tower.last is None:  # the embeddings are what the last operation gave
        return Trace(tower.operations, (*rows[:-2], rows[-1]))
    return Trace((*tower.operations, tower.last), rows)


def _keep(rows: list[Tensor], take: Callable[[Tensor], Tensor], hidden: Tensor) -> None:
    rows.append(take(hidden).detach().to("cpu", torch.float32, copy=True))  # a copy: what follows may work in place


# --- towers


def tower_of(encoder: Any, modality: str) -> TracedTower:
    """The operations of one tower. Raises InputError where it is of no known kind."""
    found = None
    if isinstance(encoder, OpenClipEncoder):
        found = _open_clip_image(encoder.model.visual) if modality == "image" else _open_clip_text(encoder.model)
    elif isinstance(encoder, TextEncoder) and hasattr(encoder.transformer, "encoder"):
        found = _bert(encoder)
    if found is None:
        raise InputError(
            f"the {modality} tower of {encoder.config.model} cannot be followed layer by layer; known are {KNOWN}"
        )
    return found


def _pre_norm(start: list[Operation], blocks: list[TransformerBlock], final: Any) -> list[Operation]:
    """x + f(norm(x)), twice per block, then the norm `final`; `start` ends with the stream x."""
    found = list(start)
    for layer, block in enumerate(blocks, start=1):
        n = len(found)
        found += [
            _normalization(layer, block.norms[0], n - 1, "attention "),
            Operation(layer, "attention", block.attention),
            Operation(layer, "attention residual", block.norms[1], "input", (n - 1, n + 1)),
            _normalization(layer, block.norms[1], n + 2, "mlp "),
            Operation(layer, "mlp", block.mlp, "output", (n + 3,) if block.steps else (), block.steps),
            Operation(layer, "mlp residual", block.end, "output", (n + 2, n + 4)),
        ]
    return [*found, _normalization(len(blocks) + 1, final, len(found) - 1)]


def _normalization(layer: int, norm: Any, source: int, prefix: str = "") -> Operation:
    steps = (Norm(norm.eps), AffineMeans.of(norm.weight, norm.bias, fan_in=1))
    return Operation(layer, f"{prefix}normalisation", norm, "output", (source,), steps)


def _projection(found: list[Operation], projection: Any) -> Operation | None:
    """From the last operation to the embeddings; a matrix multiplies from the right, a linear layer from the left."""
    if projection is None:
        return None
    is_linear = isinstance(projection, nn.Linear)
    step = AffineMeans.linear(projection) if is_linear else AffineMeans.of(projection, None, fan_in=len(projection))
    sources = (len(found) - 1,) if found[-1].sources else ()
    return Operation(found[-1].layer, "projection", None, "output", sources, (step,))


def _without_theory(operations: list[Operation]) -> list[Operation]:
    """For rows that are means over tokens, which the operations do not map to one another."""
    return [replace(operation, sources=(), steps=()) for operation in operations]


# --- open_clip


def _open_clip_image(visual: Any) -> TracedTower | None:
    if hasattr(visual, "attnpool"):
        # convolutions mix positions, so rows, which are means over positions, do not follow from one another
        found = []
        for k in (1, 2, 3):
            parts = {"convolution": "conv", "normalisation": "bn", "activation": "act"}
            found += [Operation(0, f"stem {name} {k}", getattr(visual, f"{part}{k}")) for name, part in parts.items()]
        blocks = [block for k in (1, 2, 3, 4) for block in getattr(visual, f"layer{k}")]
        for layer, block in enumerate(blocks, start=1):
            found += [
                Operation(layer, "convolution", block.conv3),
                Operation(layer, "normalisation", block.bn3),
                *([Operation(layer, "shortcut", block.downsample)] if block.downsample is not None else []),
                Operation(layer, "residual", block.act3, "input"),
                Operation(layer, "activation", block.act3),
            ]
        last = Operation(len(blocks) + 1, "attention pooling", None)
        return TracedTower(tuple(found), lambda pixels: lambda hidden: hidden.mean(dim=(2, 3)), last)
    if not hasattr(visual, "transformer") or visual.attn_pool is not None or visual.pool_type not in ("tok", "avg"):
        return None
    start = [Operation(0, "embedding", visual.ln_pre, "input")]
    if not isinstance(visual.ln_pre, nn.Identity):
        start.append(_normalization(0, visual.ln_pre, 0))
    found = _pre_norm(start, _open_clip_blocks(visual.transformer), visual.ln_post)
    if visual.pool_type == "avg":
        found = _without_theory(found)

    def take(hidden: Tensor) -> Tensor:
        return visual._global_pool(hidden)[0] if hidden.ndim == 3 else hidden

    return TracedTower(tuple(found), lambda pixels: take, _projection(found, visual.proj))


def _open_clip_text(model: Any) -> TracedTower | None:
    from open_clip.transformer import text_global_pool

    text = getattr(model, "text", model)  # CLIP keeps its text tower in pieces on the model itself
    if not hasattr(getattr(text, "transformer", None), "resblocks"):
        return None
    kind = "last" if getattr(text, "cls_emb", None) is not None else getattr(text, "pool_type", None)
    kind = kind or model.text_pool_type
    end = getattr(text, "eos_id", getattr(text, "text_eos_id", None))
    if kind not in ("first", "last", "argmax", "eos"):
        return None
    start = [Operation(0, "embedding", text.transformer.resblocks[0], "input")]
    found = _pre_norm(start, _open_clip_blocks(text.transformer), text.ln_final)

    def pooling(tokens: Tokens) -> Callable[[Tensor], Tensor]:
        def take(hidden: Tensor) -> Tensor:
            if hidden.ndim == 2:
                return hidden
            return text_global_pool(hidden, tokens.inputs.to(hidden.device), kind, eos_token_id=end)

        return take

    return TracedTower(tuple(found), pooling, _projection(found, text.text_projection))


def _open_clip_blocks(transformer: Any) -> list[TransformerBlock]:
    blocks = []
    for block in transformer.resblocks:
        mlp, gain = block.mlp, getattr(block.ls_2, "gamma", None)  # LayerScale
        steps = (AffineMeans.linear(mlp.c_fc), mlp.gelu, AffineMeans.linear(mlp.c_proj, gain))
        if not isinstance(getattr(mlp, "ln", nn.Identity()), nn.Identity):
            steps = ()  # a normalization of the hidden units
        blocks.append(TransformerBlock((block.ln_1, block.ln_2), block.ls_1, block.ls_2, steps, block))
    return blocks


# --- transformers


def _bert(encoder: TextEncoder) -> TracedTower | None:
    """BERT, RoBERTa and their relatives, whose layers have the same names."""
    bert, parts = encoder.transformer, encoder
    layers = getattr(bert.encoder, "layer", None)
    if layers is None or not all(hasattr(layer, "intermediate") for layer in layers):
        return None
    blocks = []
    for layer in layers:
        inner, out, attention = layer.intermediate, layer.output, layer.attention.output
        steps = (AffineMeans.linear(inner.dense), inner.intermediate_act_fn, AffineMeans.linear(out.dense))
        blocks.append(
            TransformerBlock((attention.LayerNorm, out.LayerNorm), attention.dropout, out.dropout, steps, layer)
        )
    norm, last = bert.embeddings.LayerNorm, None
    found = [Operation(0, "embedding", norm, "input"), _normalization(0, norm, 0)]
    for layer, block in enumerate(blocks, start=1):  # norm(x + f(x)), twice
        n = len(found)
        found += [
            Operation(layer, "attention", block.attention),
            Operation(layer, "attention residual", block.norms[0], "input", (n - 1, n)),
            _normalization(layer, block.norms[0], n + 1, "attention "),
            Operation(layer, "mlp", block.mlp, "output", (n + 2,) if block.steps else (), block.steps),
            Operation(layer, "mlp residual", block.norms[1], "input", (n + 2, n + 3)),
            _normalization(layer, block.norms[1], n + 4, "mlp "),
        ]
    if parts.pool is not cls_pooling:
        found = _without_theory(found)
    if len(parts.head) and encoder.config.features == "projected":
        last = Operation(len(blocks) + 1, "projection", None)
    elif parts.pool is not cls_pooling or parts.layer != -1:
        last = Operation(len(blocks) + 1, "pooling", None)

    def pooling(tokens: Tokens) -> Callable[[Tensor], Tensor]:
        mask = tokens.inputs["attention_mask"]
        return lambda hidden: parts.pool(hidden, mask.to(hidden.device))

    return TracedTower(tuple(found), pooling, last)
