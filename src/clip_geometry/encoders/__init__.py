"""Encoders: a model's name and options become something that embeds images and texts.

One file per family; a family registers itself under the prefix of its names. Importing this package is light:
open_clip and transformers are imported when a model is looked up.
"""

import re
from typing import Any, NamedTuple

from clip_geometry.config import validate
from clip_geometry.encoders.base import Encoder, EncoderConfig, EncoderEntry, Tokens, encoders
from clip_geometry.encoders.mclip import paired_image_model
from clip_geometry.encoders.open_clip.source import list_names
from clip_geometry.encoders.runtime import resolve_device
from clip_geometry.registry import InputError, import_all, shown

__all__ = [
    "Encoder",
    "EncoderConfig",
    "ModelList",
    "Tokens",
    "config_class",
    "encoder_revision",
    "load_encoder",
    "models",
    "paired_image_model",
    "resolve_encoder",
]


import_all(__name__)


class ModelList(NamedTuple):
    """families: (pattern, summary) of each; architectures: open_clip's NAME → its TAGs (none: only NAME/fresh)."""

    families: list[tuple[str, str]]
    architectures: dict[str, tuple[str, ...]]


def resolve_encoder(model: str, **options: Any) -> EncoderConfig:
    """The config of a model: `resolve_encoder("open_clip:RN50/fresh", seed=1, batch_norm="batch")`.

    Raises InputError, naming the nearest known one, for an unknown family, architecture, tag or option, for a
    missing file, and for an option that the model does not take. Nothing is downloaded.
    """
    entry = _family(model)
    config = validate(entry.config, {"model": model, **options}, f"model {shown(model)}")
    entry.check(config)
    return config


def config_class(model: str) -> type[EncoderConfig]:
    """The kind of config that a model's name asks for, by its family alone."""
    return _family(model).config


def load_encoder(config: EncoderConfig, device: str = "auto") -> Encoder:
    """The model itself, in eval mode. device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", …"""
    chosen = resolve_device(device)
    return _family(config.model).load(config, chosen)


def encoder_revision(config: EncoderConfig) -> str:
    """Checksum of what the config's name stands for at present: weights, architecture, tokenizer.

    The model is not built, but a model from the hub is downloaded.
    """
    return _family(config.model).revision(config)


def models() -> ModelList:
    """What `clip-geometry list models` prints."""
    return ModelList([(entry.pattern, entry.summary) for entry in encoders.values()], list_names())


def _family(model: str) -> EncoderEntry:
    prefix = re.split("[:/]", model, maxsplit=1)[0] if isinstance(model, str) else model
    if prefix == model:
        known = ", ".join(encoders)
        raise InputError(f"model {shown(model)} is no family and a name with a colon between; expected one of {known}")
    return encoders[prefix]
