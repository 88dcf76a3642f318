"""Freshly initialized towers: embeddings, and the average cosine after each operation (embedding, norm, MLP, …)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clip_geometry.data.base import Dataset, Side
from clip_geometry.embedding.store import indices_within
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.base import Encoder, Tokens
from clip_geometry.geometry import average_cosine
from clip_geometry.measuring.records import named, rows_or_notes
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.steps import parse_pipeline
from clip_geometry_experiments.kit.base import data_options

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


# --- embeddings and rows

CONE = ("average_cosine", "min_pairwise_cosine", "cone_mean_cosine", "cone_min_cosine", "cone_half_angle")
PARTITION = (
    "isotropy_i1", "isotropy_i1[canonical]", "isotropy_i1[rows]",
    "isotropy_i2", "isotropy_i2[canonical]", "isotropy_i2[rows]",
)  # fmt: skip
# cosines do not depend on the lengths of the rows, but the partition function does
MEASURED = {("normalize",): (*CONE, *PARTITION), (): PARTITION}


def run_tower(
    encoder: Encoder,
    options: Mapping[str, Any],
    dataset: Dataset,
    modality: str,
    *,
    limit: int | None,
    batch_size: int,
    seed: int,
) -> tuple[Embeddings, list[Row]]:
    """Embed a data set with one tower, and return its embeddings and the result rows of all numbers.

    Args:
        encoder: The model.
        options: Options that the model was built with; they are recorded in the result rows.
        dataset: The data set to embed.
        modality: Which modality of the data set to embed, "image" or "text".
        limit: Use only the first N items; None uses all.
        batch_size: Batch size of the encoder; all items form one batch if the rows depend on their batch.
        seed: Seed of the null values.
    """
    side = dataset.image if modality == "image" else dataset.text
    data = dataset.config
    if side is None:
        raise InputError(f"the data set {data.name} has no {modality}s; choose another data set for them")
    n = indices_within(side.item_id, limit, side.pair_on)
    size = n if encoder.config.depends_on_batch else batch_size
    batches = (_batch(encoder, side, range(start, min(start + size, n))) for start in range(0, n, size))
    traced = trace(encoder, modality, batches)
    provenance = {
        "model": encoder.config.model,
        "model_options": dict(options),
        "dataset": data.name,
        "data_options": data_options(data) | ({} if limit is None else {"limit": limit}),
        "split": data.split,
    }
    embeddings = Embeddings(traced.rows[-1].numpy(), modality, provenance=provenance)
    rows = [*_embedding_rows(embeddings, seed), *_operation_rows(traced, embeddings, seed)]
    return embeddings, [row | {"batch_size": size} for row in rows]


def _batch(encoder: Encoder, side: Side, indices: range) -> Any:
    """Load and preprocess some items of a data set for the encoder."""
    items = []
    for k in indices:
        try:
            items.append(side.load(k))
        except OSError as error:
            raise InputError(f"the {side.modality} {side.item_id[k]} cannot be read ({error}); remove it") from None
    return torch.stack(list(map(encoder.preprocess, items))) if side.modality == "image" else encoder.tokenize(items)


def _embedding_rows(embeddings: Embeddings, seed: int) -> Iterator[Row]:
    """Measure the cone and the partition function of the embeddings, on unit rows and on raw rows."""
    for pipeline, names in MEASURED.items():
        sets = MeasuredSets({embeddings.modality: embeddings}, parse_pipeline(pipeline), seed=seed, blocks=0)
        for measure in named(names):
            for row in rows_or_notes(sets, measure, named=False):
                yield {**sets.context(), **row}


def _operation_rows(traced: Trace, embeddings: Embeddings, seed: int) -> Iterator[Row]:
    """Return the average cosine after each operation."""
    shared = MeasuredSets({embeddings.modality: embeddings}, (), seed=seed, blocks=0).context()
    for operation, rows in zip(traced.operations, traced.rows, strict=True):
        number: dict[str, Any]
        try:
            number = {"value": float(average_cosine(rows))}
        except InputError as error:
            note = str(error) if rows.any() else "all rows are zero, there are no cosines"
            number = {"value": None, "note": note}
        yield {
            **shared,
            "measure": "average_cosine",
            **number,
            "n": len(rows),
            "d": rows.shape[1],
            "at": {"modality": embeddings.modality, "layer": operation.layer, "operation": operation.name},
        }
