"""The config of hidden-states:, what its encoders share, and the encoder for models of transformers."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import torch
from pydantic import field_validator, model_validator
from torch import Tensor

from clip_geometry.config import validate
from clip_geometry.encoders.base import Encoder, EncoderConfig, EncoderEntry, Rows, Tokens, encoders
from clip_geometry.encoders.hf.loading import HFConfig, apply, check_ids, context_length
from clip_geometry.encoders.hidden_states.rows import SubWords, in_sub_words, text_rows, units_of
from clip_geometry.encoders.runtime import DTYPES, inference
from clip_geometry.encoders.text_encoder import transformer_facts
from clip_geometry.registry import InputError

CLIP = re.compile(r"(open_clip|hf-hub|local-dir|hf-clip):.|scenes-clip/.")  # how the names of CLIP models begin
SENTENCE = 32  # tokens in a typical text, to estimate the size of a shard


class HiddenStatesConfig(HFConfig):
    """hidden-states:ORG/NAME or PATH, a model of transformers; or hidden-states: and the name of a CLIP model, such as
    hidden-states:open_clip:ViT-B-32/openai or hidden-states:scenes-clip/fresh, whose fresh, seed, zero_bias and
    quick_gelu are options here.

    layers: "all", or a list, 0 the embeddings, 1 the output of the first block, -1 the last. words: one row per word,
    from its "first" sub-word or the "mean" of all, or "none" for one row per sub-word. special_tokens: also rows for
    [CLS], end of text and the like, and for the class token of an image, at position -1. There is no projection:
    features=pooled gives the same rows.
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
        """One message in place of pydantic's two, one for each type of the union."""
        if given == "all":
            return given
        if isinstance(given, list | tuple) and all(type(layer) is int for layer in given):
            return tuple(given)
        said = json.dumps(given, ensure_ascii=False, default=str)[:80]
        raise ValueError(f"it is {said}; expected all, or a list such as [0, -1]")

    @model_validator(mode="after")
    def _some_layers(self) -> Self:
        if not self.layers:
            raise ValueError("layers is an empty list; expected all or some layers")
        if self.quick_gelu is not None and clip_config(self) is None:
            raise ValueError("quick_gelu is for checkpoints of open_clip")
        return self

    def chosen_layers(self, count: int, what: str) -> tuple[int, ...]:
        """The requested layers, counted from the front, ascending. count: of all layers, the embeddings included."""
        if self.layers == "all":
            return tuple(range(count))
        wrong = [layer for layer in self.layers if not -count <= layer < count]
        if wrong:
            raise InputError(f"{what} has layers 0 to {count - 1} (0: the embeddings), but layers has {wrong[0]}")
        return tuple(sorted({layer % count for layer in self.layers}))


def clip_config(config: HiddenStatesConfig) -> EncoderConfig | None:
    """The config of the CLIP model whose towers are read; None for a model of transformers."""
    if not CLIP.match(config.name):
        return None
    options = {
        key: getattr(config, key)
        for key in ("fresh", "seed", "zero_bias", "quick_gelu", "precision")
        if getattr(config, key) != HiddenStatesConfig.model_fields[key].default
    }
    return validate(entry_of(config.name).config, {"model": config.name, **options}, f"model {config.model}")


def entry_of(name: str) -> EncoderEntry:
    return encoders[re.split("[:/]", name, maxsplit=1)[0]]


class HiddenStatesEncoder(Encoder):
    """Gives several rows per input, so there is no single one to ask for."""

    config: HiddenStatesConfig  # pyright: ignore[reportIncompatibleVariableOverride]

    def image_features(self, pixels: Tensor) -> Tensor:
        raise InputError(f"{self.config.model} gives several rows an image; they are embedded into a store only")

    def text_features(self, tokens: Tokens) -> Tensor:
        raise InputError(f"{self.config.model} gives several rows a text; they are embedded into a store only")

    def rows_of_texts(
        self,
        texts: Sequence[SubWords],
        layers: Sequence[int],
        tokenizer: Any,
        hidden: Callable[[Sequence[SubWords]], Sequence[Tensor]],
    ) -> Rows:
        """`text_rows` with the options of the config."""
        names = getattr(tokenizer, "convert_ids_to_tokens", lambda ids: [tokenizer.decoder[k] for k in ids])
        units = [units_of(text, self.config.words, self.config.special_tokens, names) for text in texts]
        return text_rows(texts, units, layers, self.config.words, hidden)


class TextHiddenStates(HiddenStatesEncoder):
    """A model of transformers; the attention mask excludes the padding, which is on the right."""

    modalities = frozenset({"text"})

    def __init__(self, config: HiddenStatesConfig, model: Any, tokenizer: Any, weights: Any, device: torch.device):
        self.config = config
        self.device = device
        self.model = model.to(device, DTYPES[config.precision]).eval()
        self.tokenizer = tokenizer
        self.context_length = context_length(tokenizer, model, config.model)
        self.layers = config.chosen_layers(model.config.num_hidden_layers + 1, config.model)
        self.item_bytes = len(self.layers) * SENTENCE * model.config.hidden_size * 4
        self._weights = weights

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        found = in_sub_words(self.tokenizer, texts, self.context_length)
        return Tokens(found, sum(text.cut for text in found))

    def text_rows(self, tokens: Tokens) -> Rows:
        with inference():
            return self.rows_of_texts(tokens.inputs, self.layers, self.tokenizer, self._hidden)

    def _hidden(self, texts: Sequence[SubWords]) -> list[Tensor]:
        longest = max(len(text.ids) for text in texts)
        padding = self.tokenizer.pad_token_id
        ids = torch.full((len(texts), longest), 0 if padding is None else padding)
        mask = torch.zeros_like(ids)
        for row, text in enumerate(texts):
            ids[row, : len(text.ids)] = torch.tensor(text.ids)
            mask[row, : len(text.ids)] = 1
        check_ids(ids, self.model.get_input_embeddings(), self.config.model)
        inputs = {"input_ids": ids.to(self.device), "attention_mask": mask.to(self.device)}
        states = apply(self.model, self.config.model, inputs, output_hidden_states=True).hidden_states
        chosen = [states[layer] for layer in self.layers]
        widths = [each.shape[-1] for each in chosen]
        if len(set(widths)) > 1:
            raise InputError(
                f"the layers {list(self.layers)} of {self.config.model} have {widths} columns, so they make no one set "
                "of rows; choose some with layers=[…]"
            )
        return chosen

    def describe(self) -> Mapping[str, Any]:
        width = self.model.config.hidden_size
        facts = transformer_facts(self.model, self.tokenizer, self.context_length, self._weights, width)
        return {**facts, "layers": {"text": list(self.layers)}}
