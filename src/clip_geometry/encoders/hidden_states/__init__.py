"""Token embeddings of every layer: of transformers' encoders and decoders, and of the towers of CLIP."""

from pathlib import Path

import torch

from clip_geometry.encoders import hub
from clip_geometry.encoders.base import Encoder, EncoderEntry, encoders
from clip_geometry.encoders.hf.loading import build, load_tokenizer, read_config, revision_of, weights_of
from clip_geometry.encoders.hidden_states.clip import ClipHiddenStates
from clip_geometry.encoders.hidden_states.encoder import HiddenStatesConfig, TextHiddenStates, clip_config, entry_of
from clip_geometry.encoders.sentence import WHEELS, full_name
from clip_geometry.registry import InputError, shown

EXPECTED = "an encoder or decoder in transformers' layout"


def _named(config: HiddenStatesConfig) -> HiddenStatesConfig:
    """The config with the name of an installed wheel replaced by its folder."""
    if config.name not in WHEELS:
        return config
    return config.model_copy(update={"model": f"hidden-states:{full_name(config)}"})


def find(config: HiddenStatesConfig) -> tuple[Path, Path | None]:
    """(folder with config and tokenizer; weights file, None for a fresh model) of a model of transformers."""
    config = _named(config)
    folder = hub.folder(config.name, hub.TOKENIZER_FILES)
    values = read_config(folder, EXPECTED)
    kind = values["model_type"]
    if kind == "clip":
        raise InputError(f"{shown(folder)} holds a model of type 'clip'; name it hidden-states:hf-clip:{config.name}")
    if values.get("is_encoder_decoder") or "vision_config" in values:
        raise InputError(f"{shown(folder)} holds a model of type {shown(kind)}, not {EXPECTED} (BERT, GPT-2, …)")
    return folder, weights_of(config)


def check(config: HiddenStatesConfig) -> None:
    inner = clip_config(config)
    if inner is not None:
        entry_of(inner.model).check(inner)
        return
    if not config.name.strip():
        raise InputError(
            f"{config.model} lacks a name; expected hidden-states:ORG/NAME, a folder, or a model of CLIP such as "
            "hidden-states:scenes-clip/fresh"
        )
    hub.local_check(find)(_named(config))


def revision(config: HiddenStatesConfig) -> str:
    inner = clip_config(config)
    return revision_of(*find(config)) if inner is None else entry_of(inner.model).revision(inner)


def load(config: HiddenStatesConfig, device: torch.device) -> Encoder:
    inner = clip_config(config)
    if inner is not None:
        return ClipHiddenStates(config, entry_of(inner.model).load(inner, device))
    from transformers import AutoModel

    folder, weights = find(config)
    model, facts = build(AutoModel, folder, weights, config)
    model.config.use_cache = False  # of keys and values, which decoders would return besides
    return TextHiddenStates(config, model, load_tokenizer(folder, padding=False), facts, device)


encoders.add(
    "hidden-states",
    EncoderEntry(
        config=HiddenStatesConfig,
        load=load,
        revision=revision,
        pattern="hidden-states:ORG/NAME or PATH, or hidden-states: and the name of a CLIP model",
        summary="token embeddings of every layer (words, sub-words, patches) of BERT, GPT-2, …, and of CLIP's towers",
        check=check,
    ),
)
