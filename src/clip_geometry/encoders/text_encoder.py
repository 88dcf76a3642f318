"""What mclip, sentence and hf-text share: a transformer, a pooling over its tokens, and what follows on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from clip_geometry.encoders.base import Encoder, EncoderConfig, Tokens
from clip_geometry.encoders.hf.loading import apply
from clip_geometry.encoders.hf.tokens import check_ids, tokenize
from clip_geometry.encoders.runtime import DTYPES, activations, inference, parameter_count
from clip_geometry.encoders.token_pooling import Pooling


@dataclass(frozen=True)
class TextParts:
    """A text tower in its parts, on the CPU and in float32.

    width: columns after pooling. head: from pooled rows to projected ones, empty where there is nothing.
    prepare: what happens to a text before it is tokenized. layer: whose tokens are pooled, as transformers counts its
    hidden states. facts: what `describe` says of the family besides.
    """

    transformer: Any
    tokenizer: Any
    context_length: int
    pool: Pooling
    width: int
    weights: Mapping[str, Any]
    head: nn.Sequential = field(default_factory=nn.Sequential)
    prepare: Callable[[str], str] = str
    layer: int = -1
    facts: Mapping[str, Any] = field(default_factory=dict)


class TextEncoder(Encoder):
    """A transformer's texts: features=pooled are the rows of its pooling, features=projected those of its head."""

    modalities = frozenset({"text"})
    pads_to_longest = True

    def __init__(self, config: EncoderConfig, parts: TextParts, device: torch.device):
        self.config = config
        self.device = device
        self.parts = parts
        self.model = nn.ModuleList([parts.transformer, parts.head]).to(device, DTYPES[config.precision]).eval()

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        prepared = [self.parts.prepare(text) for text in texts]
        return tokenize(self.parts.tokenizer, prepared, self.parts.context_length, padding="longest")

    def text_features(self, tokens: Tokens) -> Tensor:
        check_ids(tokens.inputs["input_ids"], self.parts.transformer.get_input_embeddings(), self.config.model)
        inputs = {name: value.to(self.device) for name, value in tokens.inputs.items()}
        with inference():
            hidden = self._tokens(inputs)
            rows = self.parts.pool(hidden, inputs["attention_mask"])
            if self.config.features == "projected" and len(self.parts.head):
                rows = self.parts.head(rows.to(hidden.dtype))
            return rows.float().cpu()

    def _tokens(self, inputs: Mapping[str, Tensor]) -> Tensor:
        transformer, name = self.parts.transformer, self.config.model
        if self.parts.layer == -1:
            return apply(transformer, name, inputs).last_hidden_state
        return apply(transformer, name, inputs, output_hidden_states=True).hidden_states[self.parts.layer]

    def _dim(self) -> int:
        linear = [module for module in self.parts.head.modules() if isinstance(module, nn.Linear)]
        return linear[-1].out_features if linear and self.config.features == "projected" else self.parts.width

    def describe(self) -> Mapping[str, Any]:
        return {
            "weights": dict(self.parts.weights),
            "dim": {"text": self._dim()},
            "parameters": parameter_count(self.model),
            "activation": activations(self.model),
            "preprocessing": None,
            "tokenizer": type(self.parts.tokenizer).__name__,
            "context_length": self.parts.context_length,
            "logit_scale": None,
            "logit_bias": None,
            **self.parts.facts,
        }
