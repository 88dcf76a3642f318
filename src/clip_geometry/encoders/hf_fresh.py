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
from clip_geometry.encoders.hf_loading import WEIGHTS, drop_pooler, load_model
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


def build(kind: Any, folder: Path, weights: Path | None, config: HFConfig) -> tuple[Any, dict[str, Any]]:
    """(the model on the CPU in float32, what its weights are); kind: CLIPModel, AutoModel, …"""
    if weights is not None:
        return load_model(kind, folder, config.model), {"name": weights.name, "sha256": sha256_of(weights)}
    from transformers import AutoConfig

    settings = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        model = kind.from_config(settings) if hasattr(kind, "from_config") else kind(settings)
    drop_pooler(model)
    if config.zero_bias:
        _zero_biases(model)
    return model.float(), {"name": "fresh", "seed": config.seed, "zero_bias": config.zero_bias}


def _zero_biases(model: nn.Module) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
