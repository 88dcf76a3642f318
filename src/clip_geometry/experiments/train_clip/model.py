"""The model that is trained, as a folder in open_clip's layout from the first to the last step, and its objective."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.open_clip.source import CONFIG_FILE, HUB_WEIGHTS
from clip_geometry.experiments.kit.clip_training import copy_tokenizer, save_half
from clip_geometry.experiments.train_clip.config import CLASSES, COSREG, ISTAR, SIGLIP, ObjectiveConfig
from clip_geometry.files import write_atomically
from clip_geometry.losses import CosReg, IStar
from clip_geometry.reading import first_line
from clip_geometry.registry import InputError

SIGLIP_START = {"init_logit_scale": math.log(10), "init_logit_bias": -10.0}  # Zhai et al. 2023
MOMENTUM = 0.1  # weight of a batch in C_0 of IsoScore*


def make_folder(
    folder: Path, architecture: Mapping[str, Any], objective: ObjectiveConfig, mean: list[float], std: list[float]
) -> Path:
    """A folder that `local-dir:` reads, without weights: config and tokenizer."""
    copy_tokenizer(folder)
    start = SIGLIP_START if objective.arm == SIGLIP else {"init_logit_scale": -math.log(objective.temperature)}
    size = architecture["vision_cfg"]["image_size"]
    preprocess = {"size": size, "mode": "RGB", "mean": mean, "std": std}
    preprocess |= {"interpolation": "bicubic", "resize_mode": "shortest"}
    config = {"model_cfg": {**architecture, **start}, "preprocess_cfg": preprocess}
    write_atomically(folder / CONFIG_FILE, (json.dumps(config, indent=2) + "\n").encode())
    return folder


def fresh_encoder(folder: Path, seed: int) -> Encoder:
    """The encoder of a folder with first weights, on the CPU, so that they do not depend on a GPU."""
    try:
        return load_encoder(resolve_encoder(f"local-dir:{folder}", fresh=True, seed=seed), "cpu")
    except InputError:
        raise
    except Exception as error:  # whatever open_clip, timm and torch raise for these settings
        raise InputError(f"open_clip cannot build this architecture: {first_line(error)}") from None


def save_weights(model: nn.Module, folder: Path) -> Path:
    """Saves the model in float16 beside its config, so that `local-dir:FOLDER` is the trained model."""
    return save_half(model, folder / HUB_WEIGHTS[0])


class Objective(nn.Module):
    """What is minimized: the loss of embeddings as the towers give them, with a penalty or on classes."""

    def __init__(self, config: ObjectiveConfig, *, width: int, classes: int, seed: int):
        super().__init__()
        from open_clip.loss import ClipLoss, SigLipLoss

        self.config = config
        self.contrast = SigLipLoss() if config.arm == SIGLIP else ClipLoss()
        towers = ("image", "text") if config.tower == "both" else (config.tower,)
        self.penalties, self.head = nn.ModuleDict(), None
        for tower in towers:
            if config.arm == ISTAR:
                self.penalties[tower] = IStar(config.penalty, zeta=config.zeta, momentum=MOMENTUM)
            elif config.arm == COSREG:
                self.penalties[tower] = CosReg(config.penalty)
        if config.arm == CLASSES:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                self.head = nn.Linear(width, classes)

    def forward(
        self, image: Float[Tensor, "n d"], text: Float[Tensor, "n d"], labels: Int[Tensor, " n"], model: Any
    ) -> tuple[Tensor, Tensor]:
        """(the loss of the pairs or classes, the same with what a penalty adds)."""
        loss = self.loss(image, text, labels, model)
        rows = {"image": image, "text": text}
        added = [penalty(functional.normalize(rows[tower], dim=-1)) for tower, penalty in self.penalties.items()]
        return loss, loss + sum(added)

    def loss(
        self, image: Float[Tensor, "n d"], text: Float[Tensor, "n d"], labels: Int[Tensor, " n"], model: Any
    ) -> Tensor:
        """Without penalty. model: has temperature and bias."""
        if self.head is not None:
            scores = self.head(torch.cat([image, text]))
            return functional.cross_entropy(scores, torch.cat([labels, labels]))
        unit = (functional.normalize(rows, dim=-1) for rows in (image, text))
        bias = {} if model.logit_bias is None else {"logit_bias": model.logit_bias}
        return self.contrast(*unit, logit_scale=model.logit_scale.exp(), **bias)
