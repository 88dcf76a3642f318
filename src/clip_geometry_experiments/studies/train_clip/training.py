"""The model, in a folder with open_clip's layout from the first to the last step, its objective and its training."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.open_clip import CONFIG_FILE, HUB_WEIGHTS
from clip_geometry.files import write_atomically
from clip_geometry.io.reading import first_line
from clip_geometry.registry import InputError
from clip_geometry.training.losses import CosReg, IStar, SIGReg
from clip_geometry_experiments.kit.clip_training import OptimizerConfig, copy_tokenizer, save_half
from clip_geometry_experiments.kit.training import ORDER, Trainer
from clip_geometry_experiments.studies.train_clip.config import (
    CLASSES,
    COSREG,
    FIXED,
    ISTAR,
    SIGLIP,
    SIGREG,
    ObjectiveConfig,
)
from clip_geometry_experiments.studies.train_clip.data import CaptionedImages, ClassPrompts

SIGLIP_START = {"init_logit_scale": math.log(10), "init_logit_bias": -10.0}  # Zhai et al. 2023
LARGEST_SCALE = 100.0  # 1/temperature stays between 1 and this, as in CLIP
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


class ClipObjective(nn.Module):
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
            elif config.arm == SIGREG:
                self.penalties[tower] = SIGReg(config.penalty, seed=seed)
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
        length = image.shape[1] ** 0.5 if self.config.arm == SIGREG else 1  # that of standard Gaussian rows
        added = [
            penalty(length * functional.normalize(rows[tower], dim=-1)) for tower, penalty in self.penalties.items()
        ]
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


# --- the training


class Place(NamedTuple):
    """What a number is of.

    Args:
        measure: its name.
        modality: image, text or both.
        classes: "all", or for zero-shot the classes of the images: "seen" in training or "held out".
    """

    measure: str
    modality: str = "both"
    classes: str = "all"


class ClipTrainer(Trainer):
    """Trains both towers of a CLIP on image-caption pairs.

    Batches are whole, since a contrastive loss depends on their size: the rest of an epoch is not used in it.

    Args:
        model: open_clip's.
        objective: what is minimized; has parameters of its own for some objectives.
        pairs: training images and captions.
        config: of the optimizer.
        mean: of the channels, in 0..1.
        std: of the channels.
        seed: of batches, captions and dropout.
        device: where.
        prompts: for captions that name the class.
        caption_noise: share of the images with the captions of another.
    """

    Place = Place
    CAPTION, DROPOUT, NOISE = 1, 2, 3

    def __init__(
        self,
        model: Any,
        objective: ClipObjective,
        pairs: CaptionedImages,
        config: OptimizerConfig,
        *,
        mean: Tensor,
        std: Tensor,
        seed: int,
        device: torch.device,
        prompts: ClassPrompts | None = None,
        caption_noise: float = 0.0,
    ):
        if len(pairs) < config.batch_size:
            raise InputError(
                f"batch_size is {config.batch_size}, but there are {len(pairs)} images to train on; expected at most "
                "as many, batches are whole"
            )
        self.model, self.objective, self.pairs, self.prompts = model, objective, pairs, prompts
        super().__init__(
            {"model": model.to(memory_format=torch.channels_last), "objective": objective},
            config,
            steps=config.steps,
            seed=seed,
            device=device,
            precision=config.precision,
            clip=config.clip,
        )
        random, self.captioned = self.stream(self.NOISE), np.arange(len(pairs))
        swapped = random.permutation(len(pairs))[: round(caption_noise * len(pairs))]
        self.captioned[swapped] = np.roll(swapped, 1)  # a cycle: none keeps its own, if there are two
        self.mean, self.std = (255 * each.to(device).view(1, 3, 1, 1) for each in (mean, std))
        model.logit_scale.requires_grad_(objective.config.arm not in (FIXED, CLASSES))
        trained = [each for module in (model, objective) for each in module.parameters() if each.requires_grad]
        # matrices first: the norm of the gradient is a sum in this order
        trained.sort(key=lambda parameter: parameter.ndim <= 1)
        self.optimize(trained, weight_decay=config.weight_decay, betas=(0.9, config.beta2))

    def step(self) -> None:
        super().step()
        with torch.no_grad():
            self.model.logit_scale.clamp_(0, math.log(LARGEST_SCALE))

    def loss(self) -> tuple[Tensor, Tensor]:
        rows = self.batch(self.number)
        self.model.train()
        self.objective.train()
        image, text = self.embedded(rows, self.captions(rows, self.number))
        labels = torch.from_numpy(self.pairs.labels[rows]).to(self.device)
        return self.objective(image, text, labels, self.model)

    def batch(self, number: int) -> np.ndarray:
        """The images of a step."""
        size = self.config.batch_size
        epoch, place = divmod(number, len(self.pairs) // size)
        order = self.stream(ORDER, epoch).permutation(len(self.pairs))
        return np.sort(order[place * size : (place + 1) * size])

    def captions(self, rows: np.ndarray, number: int) -> Tensor:
        """(b, t) tokens: a random caption of each image, or with probability `class_captions` one that names its
        class."""
        random, rows = self.stream(self.CAPTION, number), self.captioned[rows]
        tokens = self.pairs.captions(rows, random.integers(2**31, size=len(rows)))
        chosen = np.flatnonzero(random.random(len(rows)) < self.config.class_captions)
        if len(chosen) and self.prompts is not None:
            several = len(self.prompts.tokens) // len(self.pairs.class_names)
            places = several * self.pairs.labels[rows[chosen]] + random.integers(several, size=len(chosen))
            tokens[torch.from_numpy(chosen)] = torch.from_numpy(self.prompts.tokens[places])
        return tokens

    def embedded(self, rows: np.ndarray, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """float32 embeddings of images and of tokens."""
        pixels = self.pixels(self.pairs.images(rows))
        with self.autocast():
            image = self.model.encode_image(pixels)
            text = self.model.encode_text(tokens.to(self.device))
        return image.float(), text.float()

    def pixels(self, images: Tensor) -> Tensor:
        return (images.to(self.device).float() - self.mean) / self.std
