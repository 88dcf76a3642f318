"""The properties of a model that need no weights: its towers, its size, and whether it has batch norm."""

from typing import NamedTuple

import torch
from torch import nn

from clip_geometry.encoders import models, resolve_encoder
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.encoders.hf.text import HFTextConfig
from clip_geometry.encoders.open_clip import FreshConfig, find
from clip_geometry.encoders.runtime import quiet_logging


class Architecture(NamedTuple):
    parameters: int
    batch_norm: bool  # in the image tower


def modalities(config: EncoderConfig) -> tuple[str, ...]:
    """The towers of a model; of the families with fresh models, hf-text: has no image tower."""
    return ("text",) if isinstance(config, HFTextConfig) else ("image", "text")


def architecture(config: EncoderConfig) -> Architecture | None:
    """From a model built without weights, in a tenth of a second. None for models other than open_clip's."""
    if not isinstance(config, FreshConfig):
        return None
    import open_clip

    source = find(config)
    if "hf_model_name" in source.architecture["text_cfg"]:
        return None  # its text tower is on the hub
    with quiet_logging(), torch.device("meta"):
        model = open_clip.create_model(
            source.name, load_weights=False, pretrained_text=False, device="meta",
            force_preprocess_cfg=dict(source.preprocessing),
        )  # fmt: skip
    norms = (isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
    return Architecture(sum(parameter.numel() for parameter in model.parameters()), any(norms))


def architectures_up_to(parameters: float) -> list[tuple[EncoderConfig, Architecture]]:
    """Every architecture of open_clip with at most this many parameters, fresh, the smallest first.

    Architectures whose text tower or tokenizer has to be downloaded are left out.
    """
    found = []
    for name in models().architectures:
        config = resolve_encoder(f"open_clip:{name}/fresh")
        assert isinstance(config, FreshConfig)
        if find(config).architecture["text_cfg"].keys() & {"hf_model_name", "hf_tokenizer_name"}:
            continue
        known = architecture(config)
        if known is not None and known.parameters <= parameters:
            found.append((config, known))
    return sorted(found, key=lambda each: (each[1].parameters, each[0].model))
