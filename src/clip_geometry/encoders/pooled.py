"""Features before the final projection, from towers of open_clip, which stay as they are.

"pooled" is what the tower's last projection receives. VisionTransformer and the text transformers: the pooled
token after the last LayerNorm. ModifiedResNet: the attention-pooled vector before c_proj. timm towers: the pooled
trunk before the head's linear layer or MLP, or before the trunk's own classifier where that is the projection.
Hugging Face text towers: the pooler's result. Towers without a projection (SigLIP's images) have no such thing.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

# either a module, whose input is pooled, or parameters that make the projection the identity
Projection = nn.Module | Mapping[str, Tensor]


class TextTower(nn.Module):
    """open_clip's CLIP keeps its text tower in pieces on the model itself; this is the whole as one module."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model.encode_text(tokens, normalize=False)  # pyright: ignore[reportCallIssue]


def projection(tower: Any) -> Projection | None:
    """The tower's final projection, or None where it has none."""
    if isinstance(tower, TextTower):
        return _of_attribute(tower.model, "text_projection", "model.")
    if hasattr(tower, "attnpool"):  # ModifiedResNet
        return _identity_linear(tower.attnpool.c_proj, "attnpool.c_proj")
    if hasattr(tower, "trunk"):  # TimmModel
        return _of_timm(tower)
    return _of_attribute(tower, "text_projection" if hasattr(tower, "text_projection") else "proj")


def _of_attribute(owner: Any, name: str, prefix: str = "") -> Projection | None:
    value = getattr(owner, name)
    if isinstance(value, Tensor):
        return {prefix + name: torch.eye(len(value), dtype=value.dtype, device=value.device)}
    return None if isinstance(value, nn.Identity) else value


def _identity_linear(linear: nn.Linear, name: str) -> Mapping[str, Tensor]:
    weight = linear.weight
    identity = torch.eye(linear.in_features, dtype=weight.dtype, device=weight.device)
    return {f"{name}.weight": identity, f"{name}.bias": torch.zeros_like(identity[0])}


def _of_timm(tower: Any) -> nn.Module | None:
    for name in ("proj", "mlp"):
        if hasattr(tower.head, name):
            return getattr(tower.head, name)
    classifier = tower.trunk.get_classifier()
    return classifier if isinstance(classifier, nn.Linear) else None


def pooled_width(place: Projection) -> int:
    """Number of columns of the pooled features."""
    if isinstance(place, nn.Module):
        first = next(module for module in place.modules() if isinstance(module, nn.Linear))
        return first.in_features
    return len(next(iter(place.values())))


def pooled(tower: nn.Module, place: Projection, inputs: Tensor) -> Tensor:
    """Features of the tower before `place`, its projection."""
    if isinstance(place, nn.Module):
        return _input_of(place, tower, inputs)
    features = functional_call(tower, dict(place), (inputs,))
    return features[0] if isinstance(features, tuple) else features  # CoCa's towers also return their tokens


def _input_of(module: nn.Module, tower: nn.Module, inputs: Tensor) -> Tensor:
    seen: list[Tensor] = []
    handle = module.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    try:
        tower(inputs)
    finally:
        handle.remove()
    return seen[0]
