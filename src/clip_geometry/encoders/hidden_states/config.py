"""The options of hidden-states:, and which model they are about."""

import json
import re
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from clip_geometry.config import validate
from clip_geometry.encoders.base import EncoderConfig, EncoderEntry, encoders
from clip_geometry.encoders.hf.fresh import HFConfig
from clip_geometry.registry import InputError

CLIP = re.compile(r"(open_clip|hf-hub|local-dir|hf-clip):.|scenes-clip/.")  # how the names of towers begin


class HiddenStatesConfig(HFConfig):
    """hidden-states:ORG/NAME or PATH, a model of transformers; or the name of a CLIP model behind hidden-states:, such
    as hidden-states:open_clip:ViT-B-32/openai or hidden-states:scenes-clip/fresh, whose fresh, seed, zero_bias and
    quick_gelu are taken here.

    layers: "all", or a list, 0 the embeddings, 1 the first block's result, -1 the last. words: a row per word, of its
    "first" sub-word or the "mean" of all, or "none": a row per sub-word. special_tokens: rows for [CLS], end of text
    and the like too, and for the class token of an image, at position -1. There is no projection after the layers:
    features=pooled are the same rows.
    """

    layers: Literal["all"] | tuple[int, ...] = "all"
    words: Literal["first", "mean", "none"] = "mean"
    special_tokens: bool = False
    quick_gelu: bool | None = None

    @property
    def is_fresh(self) -> bool:
        inner = clip_config(self)
        return self.fresh if inner is None else inner.is_fresh

    @field_validator("layers", mode="before")
    @classmethod
    def _all_or_a_list(cls, given: Any) -> Any:
        """In one sentence what the two kinds would say in two."""
        if given == "all":
            return given
        if isinstance(given, list | tuple) and all(type(layer) is int for layer in given):
            return tuple(given)
        said = json.dumps(given, ensure_ascii=False, default=str)[:80]
        raise ValueError(f"it is {said}; expected all, or a list such as [0, -1]")

    @model_validator(mode="after")
    def _fresh_only(self) -> Self:
        if self.layers != "all" and not self.layers:
            raise ValueError("layers is an empty list; expected all or some layers")
        if clip_config(self) is not None:
            return self
        if self.quick_gelu is not None:
            raise ValueError("quick_gelu is for checkpoints of open_clip")
        if not self.fresh and (self.seed or self.zero_bias):
            raise ValueError("seed and zero_bias are for freshly initialised models, this one has weights")
        return self


def clip_config(config: HiddenStatesConfig) -> EncoderConfig | None:
    """The config of the CLIP model whose towers are looked into; None for a model of transformers."""
    name = config.model.partition(":")[2]
    if not CLIP.match(name):
        return None
    kind = entry_of(name).config
    options = {
        key: getattr(config, key)
        for key in ("fresh", "seed", "zero_bias", "quick_gelu", "precision")
        if getattr(config, key) != HiddenStatesConfig.model_fields[key].default
    }
    return validate(kind, {"model": name, **options}, f"model {config.model}")


def entry_of(name: str) -> EncoderEntry:
    return encoders[re.split("[:/]", name, maxsplit=1)[0]]


def chosen_layers(config: HiddenStatesConfig, count: int, what: str) -> tuple[int, ...]:
    """The layers asked for, counted from the front and ascending. count: of all of them, the embeddings included."""
    if config.layers == "all":
        return tuple(range(count))
    wrong = [layer for layer in config.layers if not -count <= layer < count]
    if wrong:
        raise InputError(f"{what} has layers 0 to {count - 1} (0: the embeddings), but layers has {wrong[0]}")
    return tuple(sorted({layer % count for layer in config.layers}))
