"""Text encoders of Hugging Face transformers (BERT and its relatives), pooled over the tokens of one layer."""

from pathlib import Path
from typing import Literal

import torch

from clip_geometry.encoders import hub
from clip_geometry.encoders.base import EncoderEntry, encoders
from clip_geometry.encoders.hf.loading import (
    HFConfig,
    build,
    load_tokenizer,
    read_config,
    revision_of,
    weights_of,
)
from clip_geometry.encoders.text_encoder import POOLINGS, TextEncoder, TextParts
from clip_geometry.registry import InputError, shown

EXPECTED = "a text encoder in transformers' layout"
FAMILIES = {"clip": "hf-clip", "M-CLIP": "mclip"}  # model types that have an encoder family of their own


class HFTextConfig(HFConfig):
    """hf-text:ORG/NAME or hf-text:PATH.

    pooling: the mean over the tokens of a layer, padding excluded, or its first token, [CLS]. layer: which one, -1
    the last, -2 the one before, 0 the embeddings. There is no projection: features=pooled gives the same rows.
    """

    pooling: Literal["mean", "cls"] = "mean"
    layer: int = -1


def find(config: HFTextConfig) -> tuple[Path, Path | None]:
    """(folder with config and tokenizer; weights file, None for a fresh model), downloaded if need be."""
    folder = hub.folder(config.name, hub.TOKENIZER_FILES)
    values = read_config(folder, EXPECTED)
    kind = values["model_type"]
    if kind in FAMILIES:
        raise InputError(f"{shown(folder)} holds a model of type {kind!r}; load it by {FAMILIES[kind]}:{config.name}")
    if values.get("is_encoder_decoder") or "vision_config" in values:
        raise InputError(f"{shown(folder)} holds a model of type {shown(kind)}, not {EXPECTED} (BERT, …)")
    return folder, weights_of(config)


def revision(config: HFTextConfig) -> str:
    return revision_of(*find(config))


def load(config: HFTextConfig, device: torch.device) -> TextEncoder:
    from transformers import AutoModel

    folder, weights = find(config)
    model, facts = build(AutoModel, folder, weights, config)
    layers = model.config.num_hidden_layers
    if not -layers - 1 <= config.layer <= layers:
        raise InputError(f"{config.model} has layers 0 to {layers} (0: the embeddings), but layer = {config.layer}")
    parts = TextParts(
        transformer=model,
        tokenizer=load_tokenizer(folder),
        pool=POOLINGS[config.pooling],
        layer=config.layer,
        width=model.config.hidden_size,
        weights=facts,
    )
    return TextEncoder(config, parts, device)


encoders.add(
    "hf-text",
    EncoderEntry(
        config=HFTextConfig,
        load=load,
        revision=revision,
        pattern="hf-text:ORG/NAME or PATH",
        summary="a text encoder of transformers (BERT, …), its tokens pooled; fresh=true: initialised",
        check=hub.local_check(find),
    ),
)
