"""Models of transformers, initialised from their config instead of loaded."""

from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from clip_geometry.config import digest
from clip_geometry.encoders import hub
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.encoders.hf.loading import WEIGHTS, drop_pooler, from_settings, load_model, read_settings
from clip_geometry.files import sha256_of


class HFConfig(EncoderConfig):
    """fresh: initialise instead of loading the weights, which then need not be there. seed: of that. zero_bias: all
    biases set to zero afterwards, which changes nothing where transformers has initialised them to zero.
    """

    fresh: bool = False
    seed: int = Field(default=0, ge=0, lt=2**63)
    zero_bias: bool = False

    @property
    def is_fresh(self) -> bool:
        return self.fresh

    @model_validator(mode="after")
    def _fresh_only(self) -> Self:
        if not self.fresh and (self.seed or self.zero_bias):
            raise ValueError("seed and zero_bias are for freshly initialised models, this one has weights")
        return self


def weights_of(config: HFConfig) -> Path | None:
    """The file of the weights, downloaded if need be; None for a fresh model."""
    return None if config.fresh else hub.first_file(config.model.partition(":")[2], WEIGHTS)


def revision_of(folder: Path, weights: Path | None) -> str:
    """Identifies config, tokenizer and weights; of a fresh model the versions its initialisation depends on."""
    made_by = {name: version(name) for name in ("torch", "transformers")}
    of_weights = {"versions": made_by} if weights is None else {"weights": sha256_of(weights)}
    return digest({"folder": hub.folder_digest(folder), **of_weights})


def build(
    kind: Any, folder: Path, weights: Path | None, config: HFConfig, settings: Any = None
) -> tuple[Any, dict[str, Any]]:
    """(the model on the CPU in float32, what its weights are); kind: CLIPModel, AutoModel, …; settings: those of the
    folder's config, changed."""
    settings = settings or read_settings(folder, config.model)
    if weights is not None:
        return load_model(kind, folder, config.model, settings), {"name": weights.name, "sha256": sha256_of(weights)}
    model = from_settings(kind, settings, config.model, config.seed)
    drop_pooler(model)
    if config.zero_bias:
        _zero_biases(model)
    return model.float(), {"name": "fresh", "seed": config.seed, "zero_bias": config.zero_bias}


def _zero_biases(model: nn.Module) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
