"""Text encoders of transformers: a transformer, a pooling over its tokens, and perhaps a projection head.

The family hf-text (BERT and its relatives, without a head) is registered here; mclip and sentence build on the same
encoder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clip_geometry.encoders import hf, hub
from clip_geometry.encoders.base import Encoder, EncoderConfig, EncoderEntry, Tokens, encoders
from clip_geometry.encoders.runtime import DTYPES, inference
from clip_geometry.registry import InputError

# hidden (n, t, d), mask (n, t), 1 for tokens and 0 for padding on either side → rows (n, d or a multiple)
Pooling = Callable[[Tensor, Tensor], Tensor]


def mean_pooling(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean over the tokens, accumulated in float32 whatever the model's precision."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1, dtype=torch.float32) / weights.sum(dim=1, dtype=torch.float32)


def cls_pooling(hidden: Tensor, mask: Tensor) -> Tensor:
    """The first token, which is not in the first place where padding is on the left."""
    first = mask.int().argmax(dim=1)
    return hidden[torch.arange(len(hidden), device=hidden.device), first]


POOLINGS: dict[str, Pooling] = {"cls": cls_pooling, "mean": mean_pooling}


@dataclass(eq=False)
class TextEncoder(Encoder):
    """Texts through a transformer: features=pooled are the rows after pooling, features=projected those of the head.

    transformer, head: on the CPU and in float32. width: columns after pooling. head: from pooled to projected rows,
    empty where there is no projection. prepare: applied to a text before it is tokenized. layer: whose tokens are
    pooled, counted as transformers counts its hidden states. facts: what `describe` says about the family besides.
    """

    modalities = frozenset({"text"})
    pads_to_longest = True

    config: EncoderConfig
    device: torch.device
    transformer: Any
    tokenizer: Any
    pool: Pooling
    width: int
    weights: Mapping[str, Any]
    head: nn.Sequential = field(default_factory=nn.Sequential)
    prepare: Callable[[str], str] = str
    layer: int = -1
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.context_length = hf.context_length(self.tokenizer, self.transformer, self.config.model)
        self.model = nn.ModuleList([self.transformer, self.head]).to(self.device, DTYPES[self.config.precision]).eval()

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        prepared = [self.prepare(text) for text in texts]
        return hf.tokenize(self.tokenizer, prepared, self.context_length, padding="longest")

    def text_lengths(self, texts: Sequence[str]) -> Sequence[int]:
        return hf.token_counts(self.tokenizer, [self.prepare(text) for text in texts], self.context_length)

    def text_features(self, tokens: Tokens) -> Tensor:
        name = self.config.model
        hf.check_ids(tokens.inputs["input_ids"], self.transformer.get_input_embeddings(), name)
        inputs = {key: value.to(self.device) for key, value in tokens.inputs.items()}
        with inference():
            if self.layer == -1:
                hidden = hf.apply(self.transformer, name, inputs).last_hidden_state
            else:
                hidden = hf.apply(self.transformer, name, inputs, output_hidden_states=True).hidden_states[self.layer]
            rows = self.pool(hidden, inputs["attention_mask"])
            if self.config.features == "projected" and len(self.head):
                rows = self.head(rows.to(hidden.dtype))
            return rows.float().cpu()

    def dim(self) -> Mapping[str, int]:
        linear = [module for module in self.head.modules() if isinstance(module, nn.Linear)]
        return {"text": linear[-1].out_features if linear and self.config.features == "projected" else self.width}

    def describe(self) -> dict[str, Any]:
        return super().describe() | dict(self.facts)


# --- the family hf-text

EXPECTED = "a text encoder in transformers' layout"


class HFTextConfig(hf.HFConfig):
    """hf-text:ORG/NAME or PATH: a text encoder of transformers (BERT, …), its tokens pooled; fresh=true: initialised.

    pooling: the mean over the tokens of a layer, padding excluded, or its first token, [CLS]. layer: which one, -1
    the last, -2 the one before, 0 the embeddings. There is no projection: features=pooled gives the same rows.
    """

    pooling: Literal["mean", "cls"] = "mean"
    layer: int = -1


def find(config: HFTextConfig) -> tuple[Path, Path | None]:
    """(folder with config and tokenizer; weights file, None for a fresh model), downloaded if need be."""
    folder = hub.folder(config.name, hub.TOKENIZER_FILES)
    # model types that have an encoder family of their own
    hf.read_encoder_config(folder, EXPECTED, {"clip": f"hf-clip:{config.name}", "M-CLIP": f"mclip:{config.name}"})
    return folder, hf.weights_of(config)


def revision(config: HFTextConfig) -> str:
    return hf.revision_of(*find(config))


def load(config: HFTextConfig, device: torch.device) -> TextEncoder:
    from transformers import AutoModel

    folder, weights = find(config)
    model, facts = hf.build(AutoModel, folder, weights, config)
    layers = model.config.num_hidden_layers
    if not -layers - 1 <= config.layer <= layers:
        raise InputError(f"{config.model} has layers 0 to {layers} (0: the embeddings), but layer = {config.layer}")
    pool, width = POOLINGS[config.pooling], model.config.hidden_size
    return TextEncoder(config, device, model, hf.load_tokenizer(folder), pool, width, facts, layer=config.layer)


encoders.add("hf-text", EncoderEntry(HFTextConfig, load, revision, hub.local_check(find)))
