"""Text encoders of transformers: a transformer, pooling over its tokens, and optionally a projection head.

The family hf-text (BERT and related models, without a head) is registered here; the families mclip and sentence use
the same encoder.
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

# (hidden, mask) → rows: hidden states (n, t, d), a mask (n, t) with 1 for tokens and 0 for padding on either side, and
# rows (n, d) or (n, a multiple of d)
Pooling = Callable[[Tensor, Tensor], Tensor]


def mean_pooling(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the tokens, accumulated in float32 whatever the model's precision."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1, dtype=torch.float32) / weights.sum(dim=1, dtype=torch.float32)


def cls_pooling(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the first token that is not padding, since padding may be on the left."""
    first = mask.int().argmax(dim=1)
    return hidden[torch.arange(len(hidden), device=hidden.device), first]


POOLINGS: dict[str, Pooling] = {"cls": cls_pooling, "mean": mean_pooling}


@dataclass(eq=False)
class TextEncoder(Encoder):
    """A transformer that embeds texts.

    With features=pooled, rows are the output of the pooling; with features=projected, the output of the head.

    Args:
        transformer: The transformer, on the CPU and in float32.
        width: Number of columns after pooling.
        head: Maps pooled to projected rows, on the CPU and in float32; empty if there is no projection.
        prepare: Applied to each text before it is tokenized.
        layer: The layer whose tokens are pooled, counted like the hidden states of transformers.
        facts: Additional facts about the family for `describe`.
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
    """hf-text:ORG/NAME or PATH: a text encoder of transformers (BERT, …), its tokens pooled; fresh=true: initialized.

    There is no projection, so features=pooled gives the same rows.

    Attributes:
        pooling: "mean" is the mean over the tokens of a layer, without padding; "cls" is its first token, [CLS].
        layer: The layer: -1 is the last, -2 the one before, 0 the embeddings.
    """

    pooling: Literal["mean", "cls"] = "mean"
    layer: int = -1


def find(config: HFTextConfig) -> tuple[Path, Path | None]:
    """Return (folder with config and tokenizer, weights file), downloaded if necessary; a fresh model has None."""
    folder = hub.folder(config.name, hub.TOKENIZER_FILES)
    # these model types have their own encoder family
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
    pool = POOLINGS[config.pooling]
    width = model.config.hidden_size
    return TextEncoder(config, device, model, hf.load_tokenizer(folder), pool, width, facts, layer=config.layer)


encoders.add("hf-text", EncoderEntry(HFTextConfig, load, revision, hub.local_check(find)))
