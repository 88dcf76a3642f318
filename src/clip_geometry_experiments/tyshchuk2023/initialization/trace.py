"""Recording of the output of each operation of a tower (embedding, norm, attention, MLP, …) in one forward pass.

For each kind of open_clip tower, this module knows where its operations lie in the model and, as far as wide-network
theory applies, what they do to the rows. Other towers raise InputError.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clip_geometry.encoders.base import Encoder, Tokens
from clip_geometry.registry import InputError

# --- operations and what they do to rows


@dataclass(frozen=True)
class Norm:
    """Layer normalization without its gain and bias, which follow as an `AffineMeans`."""

    eps: float


@dataclass(frozen=True)
class AffineMeans:
    """The map x ↦ W x + b, described by the mean squares of the entries of W and b.

    A wide fresh network depends only on these.
    """

    fan_in: int
    weight: float
    bias: float = 0.0

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, *, fan_in: int) -> "AffineMeans":
        """Describe the map with this weight and bias."""
        return cls(fan_in, _mean_square(weight), 0.0 if bias is None else _mean_square(bias))

    @classmethod
    def linear(cls, linear: nn.Linear) -> "AffineMeans":
        return cls.of(linear.weight, linear.bias, fan_in=linear.in_features)


def _mean_square(values: Tensor) -> float:
    return float(values.detach().double().square().mean())


Step = Norm | AffineMeans | Callable[[Tensor], Tensor]
Take = Callable[[Tensor], Tensor]  # takes one row per input from a hidden state


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation of a tower; its rows are the input or the output of `module` (None means the tower's result).

    `layer` is 0 before the first block, the number of the block inside it, and one more after the last block. `sources`
    holds the indices of the operations whose sum is the input, and is empty where theory makes no prediction. `steps`
    are applied to that sum.
    """

    layer: int
    name: str
    module: nn.Module | None
    side: Literal["input", "output"] = "output"
    sources: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()

    def hook(self, keep: Callable[[Tensor], None]) -> Any:
        """Call `keep` with the operation's rows in every forward pass until the returned handle is removed."""
        module: Any = self.module
        if self.side == "input":
            return module.register_forward_pre_hook(lambda _, given: keep(given[0]))
        return module.register_forward_hook(lambda _, __, out: keep(out))


# --- recording


@dataclass(frozen=True, eq=False)
class Trace:
    """The operations of a tower in the order of execution, and the rows (n, width) after each one, the embeddings last.

    The rows belong to the token that becomes the embedding (class token, end of text, …); for ResNets, they are means
    over the positions of the feature map.
    """

    operations: tuple[Operation, ...]
    rows: tuple[Tensor, ...]


def trace(encoder: Encoder, modality: str, batches: Iterable[Any]) -> Trace:
    """Embed the batches (stacked pixels, or Tokens) and record the output of every operation, as float32 on the CPU.

    Only n rows are kept per operation. Raises InputError if the kind of tower is not supported.
    """
    encoder.require(modality)
    operations, pooling = _tower(encoder, modality)
    embed = encoder.image_features if modality == "image" else encoder.text_features
    recorded: list[list[Tensor]] = [[] for _ in operations]
    for batch in batches:
        take = pooling(batch)
        with ExitStack() as hooks:
            for operation, rows in zip(operations[:-1], recorded[:-1], strict=True):
                hooks.callback(operation.hook(partial(_keep, rows, take)).remove)
            recorded[-1].append(embed(batch))
    return Trace(tuple(operations), tuple(torch.cat(parts) for parts in recorded))


def _keep(rows: list[Tensor], take: Take, hidden: Tensor) -> None:
    rows.append(take(hidden).detach().to("cpu", torch.float32, copy=True))  # a copy: later operations may work in place


# --- towers


def _tower(encoder: Any, modality: str) -> tuple[list[Operation], Callable[[Any], Take]]:
    """Return the operations of a tower, the embeddings last, and a function from a batch to its `Take`."""
    from open_clip.model import CLIP
    from open_clip.modified_resnet import ModifiedResNet
    from open_clip.transformer import VisionTransformer

    model = getattr(encoder, "model", None)
    if isinstance(model, CLIP) and modality == "text":
        return _text(model)
    if isinstance(model, CLIP) and isinstance(model.visual, ModifiedResNet):
        return _resnet(model.visual), lambda pixels: lambda hidden: hidden.mean(dim=(2, 3))
    if isinstance(model, CLIP) and isinstance(model.visual, VisionTransformer) and model.visual.pool_type == "tok":
        return _image(model.visual), lambda pixels: lambda hidden: hidden[:, 0] if hidden.ndim == 3 else hidden
    raise InputError(
        f"the {modality} tower of {encoder.config.model} cannot be followed layer by layer; expected one of "
        "open_clip's CLIP: text transformers, ModifiedResNet, and vision transformers with a class token"
    )


def _image(visual: Any) -> list[Operation]:
    """Return the operations of a vision transformer, from the embedded patches to the projection."""
    start = [Operation(0, "embedding", visual.ln_pre, "input")]
    if not isinstance(visual.ln_pre, nn.Identity):
        start.append(_normalization(0, visual.ln_pre, 0))
    return _transformer(start, visual.transformer, visual.ln_post, visual.proj)


def _text(model: Any) -> tuple[list[Operation], Callable[[Any], Take]]:
    """Return the operations of the text tower, and a function from a batch of tokens to its `Take`, the pooling."""
    from open_clip.transformer import text_global_pool

    def pooling(tokens: Tokens) -> Take:
        inputs, kind, end = tokens.inputs, model.text_pool_type, model.text_eos_id

        def take(hidden: Tensor) -> Tensor:
            if hidden.ndim == 2:
                return hidden
            return text_global_pool(hidden, inputs.to(hidden.device), kind, eos_token_id=end)

        return take

    start = [Operation(0, "embedding", model.transformer.resblocks[0], "input")]
    return _transformer(start, model.transformer, model.ln_final, model.text_projection), pooling


def _transformer(start: list[Operation], transformer: Any, final: Any, projection: Any) -> list[Operation]:
    """Return the operations of a transformer: x + f(norm(x)) twice per block, then the norm `final` and the projection.

    The last operation of `start` yields the stream x.
    """
    operations = list(start)
    for layer, block in enumerate(transformer.resblocks, start=1):
        n = len(operations)  # number of the block's first operation
        mlp = block.mlp
        steps = (AffineMeans.linear(mlp.c_fc), mlp.gelu, AffineMeans.linear(mlp.c_proj))
        operations += [
            _normalization(layer, block.ln_1, n - 1, "attention "),
            Operation(layer, "attention", block.ls_1),
            Operation(layer, "attention residual", block.ln_2, "input", (n - 1, n + 1)),
            _normalization(layer, block.ln_2, n + 2, "mlp "),
            Operation(layer, "mlp", block.ls_2, "output", (n + 3,), steps),
            Operation(layer, "mlp residual", block, "output", (n + 2, n + 4)),
        ]
    end = len(transformer.resblocks) + 1
    operations.append(_normalization(end, final, len(operations) - 1))
    step = AffineMeans.of(projection, None, fan_in=len(projection))
    return [*operations, Operation(end, "projection", None, "output", (len(operations) - 1,), (step,))]


def _normalization(layer: int, norm: Any, source: int, prefix: str = "") -> Operation:
    steps = (Norm(norm.eps), AffineMeans.of(norm.weight, norm.bias, fan_in=1))
    return Operation(layer, f"{prefix}normalisation", norm, "output", (source,), steps)


def _resnet(visual: Any) -> list[Operation]:
    """Return the operations of a ResNet, without predictions.

    Convolutions mix positions, so the rows, which are means over positions, do not determine the rows after them.
    """
    operations = []
    for k in (1, 2, 3):
        parts = {"convolution": "conv", "normalisation": "bn", "activation": "act"}
        operations += [Operation(0, f"stem {name} {k}", getattr(visual, f"{part}{k}")) for name, part in parts.items()]
    blocks = [block for k in (1, 2, 3, 4) for block in getattr(visual, f"layer{k}")]
    for layer, block in enumerate(blocks, start=1):
        operations += [
            Operation(layer, "convolution", block.conv3),
            Operation(layer, "normalisation", block.bn3),
            *([Operation(layer, "shortcut", block.downsample)] if block.downsample is not None else []),
            Operation(layer, "residual", block.act3, "input"),
            Operation(layer, "activation", block.act3),
        ]
    return [*operations, Operation(len(blocks) + 1, "attention pooling", None)]
