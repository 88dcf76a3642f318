"""The encoders behind hidden-states: what both kinds share, and the one for models of transformers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clip_geometry.encoders.base import Encoder, Rows, Tokens
from clip_geometry.encoders.hf.loading import apply
from clip_geometry.encoders.hf.tokens import check_ids, context_length
from clip_geometry.encoders.hidden_states.config import HiddenStatesConfig, chosen_layers
from clip_geometry.encoders.hidden_states.rows import text_rows, units_of
from clip_geometry.encoders.hidden_states.text import SubWords, in_sub_words
from clip_geometry.encoders.runtime import DTYPES, activations, inference, parameter_count
from clip_geometry.registry import InputError

SENTENCE = 32  # tokens of a text, about, to judge how large a shard becomes


class HiddenStatesEncoder(Encoder):
    """What both kinds share: an input gives rows, a single one for it does not exist."""

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
        """`text_rows` as the config has it."""
        config = self.config
        units = [units_of(text, config.words, config.special_tokens, _names(tokenizer)) for text in texts]
        return text_rows(texts, units, layers, config.words, hidden)


def _names(tokenizer: Any) -> Any:
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return tokenizer.convert_ids_to_tokens
    return lambda ids: [tokenizer.decoder[k] for k in ids]


class TextHiddenStates(HiddenStatesEncoder):
    """A model of transformers; attention masks out the padding, which is on the right."""

    modalities = frozenset({"text"})

    def __init__(self, config: HiddenStatesConfig, model: Any, tokenizer: Any, weights: Any, device: torch.device):
        self.config = config
        self.device = device
        self.model = model.to(device, DTYPES[config.precision]).eval()
        self.tokenizer = tokenizer
        self.context_length = context_length(tokenizer, model, config.model)
        self.layers = chosen_layers(config, model.config.num_hidden_layers + 1, config.model)
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
        return {
            "weights": dict(self._weights),
            "dim": {"text": self.model.config.hidden_size},
            "parameters": parameter_count(self.model),
            "activation": activations(self.model),
            "preprocessing": None,
            "tokenizer": type(self.tokenizer).__name__,
            "context_length": self.context_length,
            "logit_scale": None,
            "logit_bias": None,
            "layers": {"text": list(self.layers)},
        }
