"""Features before the final projection of open_clip's towers, which are not modified.

"pooled" is the input of the tower's last projection. VisionTransformer and the text transformers: the pooled token
after the last LayerNorm. ModifiedResNet: the attention-pooled vector before c_proj. timm towers: the pooled trunk
before the head's linear layer or MLP, or before the trunk's own classifier where that is the projection. Hugging Face
text towers: the pooler's result. Towers without a projection (SigLIP's images) have no pooled features.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

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
