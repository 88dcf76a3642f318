"""What one tower makes of its inputs, operation by operation, in one forward pass."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.trace.operations import Affine, Norm, Operation, Tower
from clip_geometry.encoders.trace.towers import tower_of

__all__ = ["Affine", "Norm", "Operation", "Trace", "tower_parameters", "trace"]


@dataclass(frozen=True, eq=False)
class Trace:
    """operations: as the tower performs them. rows: (n, width) of each, its last ones the embeddings.

    Rows are those of the token that becomes the embedding (class token, end of text, …), for ResNets the mean over
    the places of the feature map.
    """

    operations: tuple[Operation, ...]
    rows: tuple[Tensor, ...]


def trace(encoder: Encoder, modality: str, batches: Iterable[Any]) -> Trace:
    """Embeds the batches (stacked pixels, or Tokens) and keeps what every operation gave, as float32 on the CPU.

    Nothing but n rows an operation is kept. Raises InputError where the tower has no blocks that are known here.
    """
    encoder.require(modality)
    tower = tower_of(encoder, modality)
    embed = encoder.image_features if modality == "image" else encoder.text_features
    kept: list[list[Tensor]] = [[] for _ in (*tower.operations, tower.last)]
    for batch in batches:
        with _recording(tower, batch, kept):
            kept[-1].append(embed(batch))
    operations = tower.operations if tower.last is None else (*tower.operations, tower.last)
    rows = tuple(torch.cat(parts) for parts in kept)
    # without an operation of their own, the embeddings are what the last one gave
    return Trace(operations, rows if tower.last is not None else (*rows[:-2], rows[-1]))


@contextmanager
def _recording(tower: Tower, batch: Any, kept: list[list[Tensor]]) -> Iterator[None]:
    take = tower.pooling(batch)
    with ExitStack() as hooks:
        for operation, rows in zip(tower.operations, kept, strict=False):
            hooks.callback(_hook(operation, lambda hidden, rows=rows: rows.append(_plain(take(hidden)))).remove)
        yield


def _hook(operation: Operation, keep: Any) -> Any:
    module = operation.module
    assert module is not None
    if operation.side == "input":
        return module.register_forward_pre_hook(lambda _, arguments: keep(arguments[0]))
    # attention of transformers also returns its weights
    return module.register_forward_hook(lambda _, __, out: keep(out[0] if isinstance(out, tuple) else out))


def _plain(rows: Tensor) -> Tensor:
    """A copy: what follows may work in place."""
    return rows.detach().to("cpu", torch.float32, copy=True)


def tower_parameters(model: nn.Module, modality: str) -> int:
    """Number of parameters of one tower; scale and bias of the logits and a decoder of captions are in neither."""
    count = 0
    for name, parameter in model.named_parameters():
        of_images = name.startswith(("visual", "vision"))
        if of_images == (modality == "image") and not name.startswith(("logit", "text_decoder")):
            count += parameter.numel()
    return count
