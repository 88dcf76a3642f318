"""Text encoders of Hugging Face transformers (BERT and its kin), with a pooling over the tokens of a layer."""

from pathlib import Path
from typing import Literal

import torch

from clip_geometry.encoders import hub
from clip_geometry.encoders.base import EncoderEntry, encoders
from clip_geometry.encoders.hf.fresh import HFConfig, build, revision_of, weights_of
from clip_geometry.encoders.hf.loading import load_tokenizer, read_config
from clip_geometry.encoders.hf.tokens import context_length
from clip_geometry.encoders.shipped import model_path
from clip_geometry.encoders.text_encoder import TextEncoder, TextParts
from clip_geometry.encoders.token_pooling import POOLINGS
from clip_geometry.registry import InputError, shown

EXPECTED = "a text encoder in transformers' layout"
FAMILIES = {"clip": "hf-clip", "M-CLIP": "mclip"}  # those that have one of their own


class HFTextConfig(HFConfig):
    """hf-text:ORG/NAME or hf-text:PATH. pooling: the mean over the tokens of a layer, padding left out, or the first
    token, [CLS]. layer: which, -1 the last, -2 the one before, 0 the embeddings. There is no projection after it:
    features=pooled are the same rows.
    """

    pooling: Literal["mean", "cls"] = "mean"
    layer: int = -1


def find(config: HFTextConfig) -> tuple[Path, Path | None]:
    """(folder with config and tokenizer; weights file, None: fresh), downloaded if need be."""
    name = config.model.partition(":")[2]
    folder = hub.folder(name, hub.TOKENIZER_FILES)
    _check_config(folder, name)
    return folder, weights_of(config)


def _check_config(folder: Path, name: str) -> None:
    values = read_config(folder, EXPECTED)
    kind = values["model_type"]
    if kind in FAMILIES:
        raise InputError(f"{shown(folder)} holds a model of type {kind!r}; load it by {FAMILIES[kind]}:{name}")
    if values.get("is_encoder_decoder") or "vision_config" in values:
        raise InputError(f"{shown(folder)} holds a model of type {shown(kind)}, not {EXPECTED} (BERT, …)")


def check(config: HFTextConfig) -> None:
    name = config.model.partition(":")[2]
    hub.check_name(name)
    if model_path(name).is_dir():
        find(config)


def revision(config: HFTextConfig) -> str:
    return revision_of(*find(config))


def load(config: HFTextConfig, device: torch.device) -> TextEncoder:
    from transformers import AutoModel

    folder, weights = find(config)
    model, facts = build(AutoModel, folder, weights, config)
    layers = model.config.num_hidden_layers
    if not -layers - 1 <= config.layer <= layers:
        raise InputError(f"{config.model} has layers 0 to {layers} (0: the embeddings), but layer = {config.layer}")
    tokenizer = load_tokenizer(folder)
    parts = TextParts(
        transformer=model,
        tokenizer=tokenizer,
        context_length=context_length(tokenizer, model, config.model),
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
        check=check,
    ),
)
