"""Where the operations lie: one adapter for each kind of tower; a tower that none of them fits is refused."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from clip_geometry.encoders.base import Encoder, Tokens
from clip_geometry.encoders.hf.clip import HFClipEncoder
from clip_geometry.encoders.open_clip import OpenClipEncoder
from clip_geometry.encoders.text_encoder import TextEncoder
from clip_geometry.encoders.token_pooling import cls_pooling
from clip_geometry.encoders.trace.operations import (
    Affine,
    Block,
    Operation,
    Step,
    Tower,
    linear_step,
    norm_steps,
    post_norm,
    pre_norm,
    without_theory,
)
from clip_geometry.registry import InputError

KNOWN = "open_clip's vision and text transformers and ModifiedResNet, transformers' CLIP and BERT"


def tower_of(encoder: Any, modality: str) -> Tower:
    """The operations of one tower. Raises InputError where it is of no kind that is known here."""
    found = None
    if isinstance(encoder, OpenClipEncoder):
        found = _open_clip_image(encoder.model.visual) if modality == "image" else _open_clip_text(encoder.model)
    elif isinstance(encoder, HFClipEncoder):
        found = _hf_image(encoder.model) if modality == "image" else _hf_text(encoder.model)
    elif isinstance(encoder, TextEncoder) and hasattr(encoder.parts.transformer, "encoder"):
        found = _bert(encoder)
    if found is None:
        raise InputError(f"{_named(encoder, modality)} cannot be followed layer by layer; known are {KNOWN}")
    return found


def _named(encoder: Encoder, modality: str) -> str:
    return f"the {modality} tower of {encoder.config.model}"


# --- open_clip


def _open_clip_image(visual: Any) -> Tower | None:
    if hasattr(visual, "attnpool"):
        return _resnet(visual)
    if not hasattr(visual, "transformer") or visual.attn_pool is not None or visual.pool_type not in ("tok", "avg"):
        return None
    found = [Operation(0, "embedding", visual.ln_pre, "input")]
    if not isinstance(visual.ln_pre, nn.Identity):
        found.append(Operation(0, "normalisation", visual.ln_pre, "output", (0,), norm_steps(visual.ln_pre)))
    found = pre_norm(found, _open_clip_blocks(visual.transformer))
    found.append(_final_norm(found, visual.ln_post))
    if visual.pool_type == "avg":
        found = without_theory(found)

    def take(hidden: Tensor) -> Tensor:
        return visual._global_pool(hidden)[0] if hidden.ndim == 3 else hidden

    return Tower(tuple(found), lambda pixels: take, _projection(found, visual.proj))


def _open_clip_text(model: Any) -> Tower | None:
    from open_clip.transformer import text_global_pool

    text = getattr(model, "text", model)  # CLIP keeps its text tower in pieces on the model itself
    if not hasattr(getattr(text, "transformer", None), "resblocks"):
        return None
    kind = "last" if getattr(text, "cls_emb", None) is not None else getattr(text, "pool_type", None)
    kind = kind or model.text_pool_type
    end = getattr(text, "eos_id", getattr(text, "text_eos_id", None))
    if kind not in ("first", "last", "argmax", "eos"):
        return None
    found = pre_norm(
        [Operation(0, "embedding", text.transformer.resblocks[0], "input")], _open_clip_blocks(text.transformer)
    )
    found.append(_final_norm(found, text.ln_final))

    def pooling(tokens: Tokens) -> Callable[[Tensor], Tensor]:
        def take(hidden: Tensor) -> Tensor:
            if hidden.ndim == 2:
                return hidden
            return text_global_pool(hidden, tokens.inputs.to(hidden.device), kind, eos_token_id=end)

        return take

    return Tower(tuple(found), pooling, _projection(found, text.text_projection))


def _open_clip_blocks(transformer: Any) -> list[Block]:
    return [
        Block((block.ln_1, block.ln_2), block.ls_1, block.ls_2, _open_clip_mlp(block), block)
        for block in transformer.resblocks
    ]


def _open_clip_mlp(block: Any) -> tuple[Step, ...]:
    if not isinstance(getattr(block.mlp, "ln", nn.Identity()), nn.Identity):
        return ()  # a normalisation of the hidden units
    gain = getattr(block.ls_2, "gamma", None)  # LayerScale
    return (linear_step(block.mlp.c_fc), block.mlp.gelu, linear_step(block.mlp.c_proj, gain))


def _final_norm(found: list[Operation], norm: Any) -> Operation:
    return Operation(found[-1].layer + 1, "normalisation", norm, "output", (len(found) - 1,), norm_steps(norm))


def _projection(found: list[Operation], projection: Any) -> Operation | None:
    """From the last operation to the embeddings; a matrix multiplies from the right, a linear layer from the left."""
    if projection is None:
        return None
    if isinstance(projection, nn.Linear):
        step = linear_step(projection)
    else:
        step = Affine.of(projection, None, fan_in=len(projection))
    sources = (len(found) - 1,) if found[-1].sources else ()
    return Operation(found[-1].layer, "projection", None, "output", sources, (step,))


def _resnet(visual: Any) -> Tower:
    """Convolutions mix places, so rows, which are means over places, do not follow one from the other."""
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

    def take(hidden: Tensor) -> Tensor:
        return hidden.mean(dim=(2, 3))

    return Tower(tuple(found), lambda pixels: take, Operation(len(blocks) + 1, "attention pooling", None))


# --- transformers


def _hf_image(model: Any) -> Tower:
    vision = model.vision_model
    norm = vision.pre_layrnorm
    start = [
        Operation(0, "embedding", norm, "input"),
        Operation(0, "normalisation", norm, "output", (0,), norm_steps(norm)),
    ]
    found = pre_norm(start, _hf_blocks(vision))
    found.append(_final_norm(found, vision.post_layernorm))

    def take(hidden: Tensor) -> Tensor:
        return hidden[:, 0] if hidden.ndim == 3 else hidden

    return Tower(tuple(found), lambda pixels: take, _projection(found, model.visual_projection))


def _hf_text(model: Any) -> Tower:
    text = model.text_model
    found = pre_norm([Operation(0, "embedding", text.embeddings)], _hf_blocks(text))
    found.append(_final_norm(found, text.final_layer_norm))
    end = text.config.eos_token_id

    def pooling(tokens: Tokens) -> Callable[[Tensor], Tensor]:
        ids = tokens.inputs["input_ids"]
        place = ids.argmax(dim=1) if end == 2 else (ids == end).int().argmax(dim=1)  # as CLIPTextModel chooses
        return lambda hidden: hidden[torch.arange(len(hidden)), place.to(hidden.device)]

    return Tower(tuple(found), pooling, _projection(found, model.text_projection))


def _hf_blocks(tower: Any) -> list[Block]:
    return [
        Block(
            (layer.layer_norm1, layer.layer_norm2),
            layer.self_attn,
            layer.mlp,
            (linear_step(layer.mlp.fc1), layer.mlp.activation_fn, linear_step(layer.mlp.fc2)),
            layer,
        )
        for layer in tower.encoder.layers
    ]


def _bert(encoder: TextEncoder) -> Tower | None:
    """BERT, and RoBERTa and their kin, whose layers have the same names."""
    bert = encoder.parts.transformer
    layers = getattr(bert.encoder, "layer", None)
    if layers is None or not all(hasattr(layer, "intermediate") for layer in layers):
        return None
    norm = bert.embeddings.LayerNorm
    start = [
        Operation(0, "embedding", norm, "input"),
        Operation(0, "normalisation", norm, "output", (0,), norm_steps(norm)),
    ]
    blocks = []
    for layer in layers:
        inner, out = layer.intermediate, layer.output
        steps = (linear_step(inner.dense), inner.intermediate_act_fn, linear_step(out.dense))
        attention = layer.attention.output
        blocks.append(Block((attention.LayerNorm, out.LayerNorm), attention.dropout, out.dropout, steps, layer))
    found = post_norm(start, blocks)
    parts, last = encoder.parts, None
    if parts.pool is not cls_pooling:
        found = without_theory(found)
    if len(parts.head) and encoder.config.features == "projected":
        last = Operation(len(blocks) + 1, "projection", None)
    elif parts.pool is not cls_pooling or parts.layer != -1:
        last = Operation(len(blocks) + 1, "pooling", None)

    def pooling(tokens: Tokens) -> Callable[[Tensor], Tensor]:
        mask = tokens.inputs["attention_mask"]
        return lambda hidden: parts.pool(hidden, mask.to(hidden.device))

    return Tower(tuple(found), pooling, last)
