"""Text encoders of Hugging Face transformers (BERT and its kin), with a pooling over the tokens of the last layer."""

from pathlib import Path
from typing import Literal

import torch

from clip_geometry.config import digest
from clip_geometry.encoders import hub
from clip_geometry.encoders.base import EncoderConfig, EncoderEntry, encoders
from clip_geometry.encoders.hf_loading import WEIGHTS, load_model, load_tokenizer, read_config
from clip_geometry.encoders.hf_tokens import context_length
from clip_geometry.encoders.text_encoder import TextEncoder, TextParts
from clip_geometry.encoders.token_pooling import POOLINGS
from clip_geometry.files import sha256_of
from clip_geometry.registry import InputError

EXPECTED = "a text encoder in transformers' layout"
FAMILIES = {"clip": "hf-clip", "M-CLIP": "mclip"}  # those that have one of their own


class HFTextConfig(EncoderConfig):
    """hf-text:ORG/NAME or hf-text:PATH. pooling: the mean over the tokens of the last layer, padding left out, or the
    first token, [CLS]. There is no projection after it: features=pooled are the same rows.
    """

    pooling: Literal["mean", "cls"] = "mean"


def find(config: EncoderConfig) -> tuple[Path, Path]:
    """(folder with config and tokenizer; weights file), downloaded if need be."""
    name = config.model.partition(":")[2]
    folder = hub.folder(name, hub.TOKENIZER_FILES)
    _check_config(folder, name)
    return folder, hub.first_file(name, WEIGHTS)


def _check_config(folder: Path, name: str) -> None:
    values = read_config(folder, EXPECTED)
    kind = values["model_type"]
    if kind in FAMILIES:
        raise InputError(f"{folder} holds a model of type {kind!r}; load it by {FAMILIES[kind]}:{name}")
    if values.get("is_encoder_decoder") or "vision_config" in values:
        raise InputError(f"{folder} holds a model of type {kind!r}, not {EXPECTED} (BERT, …)")


def check(config: EncoderConfig) -> None:
    name = config.model.partition(":")[2]
    hub.check_name(name)
    if Path(name).expanduser().is_dir():
        find(config)


def revision(config: EncoderConfig) -> str:
    folder, weights = find(config)
    return digest({"folder": hub.folder_digest(folder), "weights": sha256_of(weights)})


def load(config: HFTextConfig, device: torch.device) -> TextEncoder:
    from transformers import AutoModel

    folder, weights = find(config)
    model = load_model(AutoModel, folder, config.model)
    tokenizer = load_tokenizer(folder)
    parts = TextParts(
        transformer=model,
        tokenizer=tokenizer,
        context_length=context_length(tokenizer, model, config.model),
        pool=POOLINGS[config.pooling],
        width=model.config.hidden_size,
        weights={"name": weights.name, "sha256": sha256_of(weights)},
    )
    return TextEncoder(config, parts, device)


encoders.add(
    "hf-text",
    EncoderEntry(
        config=HFTextConfig,
        load=load,
        revision=revision,
        pattern="hf-text:ORG/NAME or PATH",
        summary="a text encoder of transformers (BERT, …), its tokens pooled",
        check=check,
    ),
)
