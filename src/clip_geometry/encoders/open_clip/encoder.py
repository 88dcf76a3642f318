"""The encoder of open_clip's models, with features before and after the final projection of its towers.

"pooled" is the input of the tower's last projection. VisionTransformer and the text transformers: the pooled token
after the last LayerNorm. ModifiedResNet: the attention-pooled vector before c_proj. timm towers: the pooled trunk
before the head's linear layer or MLP, or before the trunk's own classifier where that is the projection. Hugging Face
text towers: the pooler's result. Towers without a projection (SigLIP's images) have no pooled features.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from clip_geometry.encoders.base import Encoder, EncoderConfig, Tokens
from clip_geometry.encoders.hf import check_ids, one_sentence
from clip_geometry.encoders.open_clip.source import Source
from clip_geometry.encoders.pixels import halves
from clip_geometry.encoders.runtime import DTYPES, inference, model_facts
from clip_geometry.registry import InputError

# either a module, whose input is the pooled features, or parameters that make the projection the identity
Projection = nn.Module | Mapping[str, Tensor]


class TextTower(nn.Module):
    """The text tower of open_clip's CLIP, which keeps its pieces on the model itself, as one module."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model.encode_text(tokens, normalize=False)  # pyright: ignore[reportCallIssue]


def projection(tower: Any) -> Projection | None:
    """The tower's final projection, or None where it has none."""
    if hasattr(tower, "attnpool"):  # ModifiedResNet
        weight = tower.attnpool.c_proj.weight
        identity = torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)
        return {"attnpool.c_proj.weight": identity, "attnpool.c_proj.bias": torch.zeros_like(identity[0])}
    if hasattr(tower, "trunk"):  # TimmModel
        classifier = tower.trunk.get_classifier()
        own = classifier if isinstance(classifier, nn.Linear) else None
        return getattr(tower.head, "proj", getattr(tower.head, "mlp", own))
    if isinstance(tower, TextTower):
        owner, prefix, name = tower.model, "model.", "text_projection"
    else:
        owner, prefix, name = tower, "", "text_projection" if hasattr(tower, "text_projection") else "proj"
    value = getattr(owner, name)
    if isinstance(value, Tensor):
        return {prefix + name: torch.eye(len(value), dtype=value.dtype, device=value.device)}
    return None if isinstance(value, nn.Identity) else value


def pooled_width(place: Projection) -> int:
    """Number of columns of the pooled features."""
    if isinstance(place, nn.Module):
        return next(module for module in place.modules() if isinstance(module, nn.Linear)).in_features
    return len(next(iter(place.values())))


def pooled(tower: nn.Module, place: Projection, inputs: Tensor) -> Tensor:
    """Features of the tower before `place`, its projection."""
    if not isinstance(place, nn.Module):
        features = functional_call(tower, dict(place), (inputs,))
        return features[0] if isinstance(features, tuple) else features  # CoCa's towers also return their tokens
    seen: list[Tensor] = []
    handle = place.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        tower(inputs)
    finally:
        handle.remove()
    return seen[0]


def linear_head(tower: Any, place: Projection | None, what: str) -> Float[Tensor, "width d"]:
    """The tower's final projection A, pooled features f ↦ f A; with a bias as last row, for f followed by 1."""
    if place is None:
        raise InputError(f"{what} ends without a projection, so it has no head")
    linear = tower.attnpool.c_proj if hasattr(tower, "attnpool") else place
    if isinstance(linear, nn.Linear):
        return linear.weight.T if linear.bias is None else torch.cat([linear.weight.T, linear.bias[None]])
    if isinstance(linear, nn.Module):
        raise InputError(f"{what} ends in a {type(linear).__name__}, which is no linear projection, so it has no head")
    return tower.get_parameter(next(iter(linear)))


def count_truncated(tokenizer: Any, texts: Sequence[str], ids: Tensor, context_length: int) -> int:
    """Number of texts with more than `context_length` tokens, start and end included; `ids`: the tokenizer's output.

    Only rows filled to the end (a real token in one of the last two places) can have been truncated: those alone are
    tokenized again, in full. Two places, since T5 pads with its end token.
    """
    inner = getattr(tokenizer, "tokenizer", None)
    padding = 0 if inner is None else inner.pad_token_id
    filled = (ids[:, -2:] != padding).any(dim=1)

    def tokens(text: str) -> int:
        if inner is None:  # SimpleTokenizer
            return len(tokenizer.encode(text)) + 2
        clips = getattr(tokenizer, "tokenizer_mode", "") == "clips"  # it adds start, end and class token itself
        uncut = inner(tokenizer.clean_fn(text), truncation=False, verbose=False, add_special_tokens=not clips)
        return len(uncut.input_ids) + (3 if clips else 0)

    return sum(tokens(text) > context_length for text, full in zip(texts, filled.tolist(), strict=True) if full)


class OpenClipEncoder(Encoder):
    """A model of open_clip in eval mode with its own evaluation transform and tokenizer."""

    modalities = frozenset({"image", "text"})

    def __init__(
        self,
        config: EncoderConfig,
        model: Any,
        transform: Any,
        tokenizer: Any,
        source: Source,
        weights: Mapping[str, Any],
    ):
        self.config = config
        self.model = model
        self.device = model.logit_scale.device
        self.transform = transform
        self.pixels = halves(transform)
        self.tokenizer = tokenizer
        self.architecture = source.architecture
        self._weights = weights
        self._towers = {"image": model.visual, "text": model.text if hasattr(model, "text") else TextTower(model)}
        self._projections = {modality: projection(tower) for modality, tower in self._towers.items()}

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        with one_sentence(f"the tokenizer of {self.config.model} fails"):
            ids = self.tokenizer(list(texts))
        return Tokens(ids, count_truncated(self.tokenizer, texts, ids, self.tokenizer.context_length))

    def compile(self) -> None:
        self.model.visual.compile()
        text = self.model.text if hasattr(self.model, "text") else self.model.transformer
        text.compile()

    def image_features(self, pixels: Tensor) -> Tensor:
        pixels = pixels.to(self.device, DTYPES[self.config.precision])
        return self._features("image", self.model.encode_image, pixels)

    def text_features(self, tokens: Tokens) -> Tensor:
        tower = getattr(self.model, "text", self.model)
        own = getattr(tower, "token_embedding", None)
        embedding = tower.transformer.get_input_embeddings() if own is None else own
        check_ids(tokens.inputs, embedding, self.config.model)
        return self._features("text", self.model.encode_text, tokens.inputs.to(self.device))

    def _features(self, modality: str, encode: Any, inputs: Tensor) -> Tensor:
        place = self._projections[modality]
        with inference():
            if self.config.features == "projected":
                rows = encode(inputs, normalize=False)  # CoCa normalizes by default
            elif place is None:
                raise InputError(
                    f"the {modality} tower of {self.config.model} ends without a projection, it has no pooled "
                    "features; use features=projected"
                )
            else:
                rows = pooled(self._towers[modality], place, inputs)
            return rows.float().cpu()

    def heads(self) -> dict[str, np.ndarray]:
        """Return the linear projection of each tower, modality → (width, d) float64, as `IsoCLIP` is fitted on it.

        Pooled features f become embeddings f A. Of a projection with a bias, the bias is the last row of A.

        Raises:
            InputError: A tower ends without a projection, or in one that is not linear.
        """
        found = {}
        for modality, tower in self._towers.items():
            head = linear_head(tower, self._projections[modality], f"the {modality} tower of {self.config.model}")
            found[modality] = head.detach().double().cpu().numpy()
        return found

    def describe(self) -> Mapping[str, Any]:
        dim = {modality: pooled_width(p) if p is not None else None for modality, p in self._projections.items()}
        if self.config.features == "projected":
            dim = dict.fromkeys(self._towers, self.architecture["embed_dim"])
        tokenizer, inner = type(self.tokenizer).__name__, getattr(self.tokenizer, "tokenizer", None)
        if inner is not None:
            tokenizer += f"({type(inner).__name__} {self.architecture['text_cfg']['hf_tokenizer_name']})"
        bias = self.model.logit_bias
        return model_facts(
            self.model,
            self._weights,
            dim,
            preprocessing=repr(self.transform),
            tokenizer=tokenizer,
            context_length=self.tokenizer.context_length,
            logit_scale=self.model.logit_scale.exp().item(),
            logit_bias=None if bias is None else bias.item(),
        )
