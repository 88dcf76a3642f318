"""Recording of the output of each operation of a tower (embedding, norm, attention, MLP, …) in one forward pass.

For each kind of open_clip tower, this module knows where its operations lie in the model. Other towers raise
InputError.
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

Take = Callable[[Tensor], Tensor]  # takes one row per input from a hidden state


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation of a tower; its rows are the input or the output of `module` (None means the tower's result).

    `layer` is 0 before the first block, the number of the block inside it, and one more after the last block.
    """

    layer: int
    name: str
    module: nn.Module | None
    side: Literal["input", "output"] = "output"

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
        start.append(Operation(0, "normalisation", visual.ln_pre))
    return _transformer(start, visual.transformer, visual.ln_post)


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
    return _transformer(start, model.transformer, model.ln_final), pooling


def _transformer(start: list[Operation], transformer: Any, final: Any) -> list[Operation]:
    """Return the operations of a transformer: x + f(norm(x)) twice per block, then the norm `final` and the projection.

    The last operation of `start` yields the stream x.
    """
    operations = list(start)
    for layer, block in enumerate(transformer.resblocks, start=1):
        operations += [
            Operation(layer, "attention normalisation", block.ln_1),
            Operation(layer, "attention", block.ls_1),
            Operation(layer, "attention residual", block.ln_2, "input"),
            Operation(layer, "mlp normalisation", block.ln_2),
            Operation(layer, "mlp", block.ls_2),
            Operation(layer, "mlp residual", block),
        ]
    end = len(transformer.resblocks) + 1
    return [*operations, Operation(end, "normalisation", final), Operation(end, "projection", None)]


def _resnet(visual: Any) -> list[Operation]:
    """Return the operations of a ResNet, whose rows are means over the positions."""
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
