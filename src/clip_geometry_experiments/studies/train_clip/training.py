"""The model, in a folder with open_clip's layout from the first to the last step, its objective and its trainer."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.open_clip import CONFIG_FILE, HUB_WEIGHTS
from clip_geometry.files import write_atomically
from clip_geometry.io.reading import first_line
from clip_geometry.registry import InputError
from clip_geometry.training.losses import CosReg, IStar
from clip_geometry_experiments.kit.clip_training import Place, copy_tokenizer, save_half
from clip_geometry_experiments.kit.training import Trainer
from clip_geometry_experiments.studies.train_clip.data import CaptionedImages, ClassPrompts, TrainClipConfig

SIGLIP_START = {"init_logit_scale": math.log(10), "init_logit_bias": -10.0}  # Zhai et al. 2023
LARGEST_SCALE = 100.0  # 1/temperature stays between 1 and this value, as in CLIP
ZETA, MOMENTUM = 0.2, 0.1  # shrinkage of IsoScore*, and the weight of a batch in C_0


def make_folder(folder: Path, config: TrainClipConfig, mean: list[float], std: list[float]) -> Path:
    """Write a folder that `local-dir:` reads, with config and tokenizer but without weights."""
    copy_tokenizer(folder)
    start = SIGLIP_START if config.arm == "siglip" else {"init_logit_scale": -math.log(config.temperature)}
    size = config.architecture.vision_cfg["image_size"]
    preprocess = {"size": size, "mode": "RGB", "mean": mean, "std": std}
    preprocess |= {"interpolation": "bicubic", "resize_mode": "shortest"}
    settings = {"model_cfg": {**config.architecture.model_dump(), **start}, "preprocess_cfg": preprocess}
    write_atomically(folder / CONFIG_FILE, (json.dumps(settings, indent=2) + "\n").encode())
    return folder


def fresh_encoder(folder: Path, seed: int) -> Encoder:
    """Return the encoder of a folder with initial weights, drawn on the CPU so that they do not depend on a GPU."""
    try:
        return load_encoder(f"local-dir:{folder}", "cpu", fresh=True, seed=seed)
    except InputError:
        raise
    except Exception as error:  # any error of open_clip, timm and torch for these settings
        raise InputError(f"open_clip cannot build this architecture: {first_line(error)}") from None


def save_weights(model: nn.Module, folder: Path) -> Path:
    """Save the model in float16 next to its config, so that `local-dir:FOLDER` loads the trained model."""
    return save_half(model, folder / HUB_WEIGHTS[0])


class ClipObjective(nn.Module):
    """The training objective: a loss of the unnormalized embeddings of both towers, with a penalty or on classes.

    Args:
        arm: The objective, as in `ObjectiveConfig.arm`.
        penalty: Weight of the penalty.
        width: Number of columns of the embeddings.
        classes: Number of classes.
        seed: Seed of the classification layer.
    """

    def __init__(self, arm: str, *, penalty: float = 1.0, width: int, classes: int, seed: int):
        super().__init__()
        from open_clip.loss import ClipLoss, SigLipLoss

        self.arm = arm
        self.contrast = SigLipLoss() if arm == "siglip" else ClipLoss()
        self.penalties = nn.ModuleDict()
        self.head = None
        for tower in ("image", "text"):
            if arm == "istar":
                self.penalties[tower] = IStar(penalty, zeta=ZETA, momentum=MOMENTUM)
            elif arm == "cosreg":
                self.penalties[tower] = CosReg(penalty)
        if arm == "classes":
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                self.head = nn.Linear(width, classes)

    def forward(
        self, image: Float[Tensor, "n d"], text: Float[Tensor, "n d"], labels: Int[Tensor, " n"], model: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of the pairs or classes, without and with the penalty."""
        loss = self.loss(image, text, labels, model)
        rows = {"image": image, "text": text}
        added = [penalty(functional.normalize(rows[tower], dim=-1)) for tower, penalty in self.penalties.items()]
        return loss, loss + sum(added)

    def loss(
        self, image: Float[Tensor, "n d"], text: Float[Tensor, "n d"], labels: Int[Tensor, " n"], model: Any
    ) -> Tensor:
        """Return the loss without the penalty; `model` provides temperature and bias."""
        if self.head is not None:
            scores = self.head(torch.cat([image, text]))
            return functional.cross_entropy(scores, torch.cat([labels, labels]))
        unit = (functional.normalize(rows, dim=-1) for rows in (image, text))
        bias = {} if model.logit_bias is None else {"logit_bias": model.logit_bias}
        return self.contrast(*unit, logit_scale=model.logit_scale.exp(), **bias)


class ClipTrainer(Trainer):
    """Trains both towers of a CLIP on image-caption pairs.

    Every batch is full, since a contrastive loss depends on the batch size: the remainder of an epoch is skipped.

    Args:
        encoder: The model with its initial weights.
        pairs: Training images and captions.
        prompts: Prompts for captions that name only the class.
        config: Config of the experiment.
        device: Device to train on.
    """

    Place = Place
    CAPTION, DROPOUT, NOISE = 1, 2, 3

    def __init__(
        self,
        encoder: Encoder,
        pairs: CaptionedImages,
        prompts: ClassPrompts,
        config: TrainClipConfig,
        *,
        device: torch.device,
    ):
        if len(pairs) < config.batch_size:
            raise InputError(
                f"batch_size is {config.batch_size}, but there are {len(pairs)} images to train on; lower batch_size, "
                "because all batches are full"
            )
        model: Any = encoder.model  # pyright: ignore[reportAttributeAccessIssue]
        size = {"width": config.architecture.embed_dim, "classes": len(pairs.class_names)}
        self.objective = ClipObjective(config.arm, penalty=config.penalty, **size, seed=config.seed)
        self.model, self.pairs, self.prompts = model, pairs, prompts
        modules = {"model": model.to(memory_format=torch.channels_last), "objective": self.objective}
        super().__init__(modules, config, device=device)
        noisy = round(config.caption_noise * len(pairs))
        swapped = self.stream(self.NOISE).permutation(len(pairs))[:noisy]
        self.captioned = np.arange(len(pairs))  # the image whose captions each image gets
        self.captioned[swapped] = np.roll(swapped, 1)  # a cycle: with at least two images, none keeps its own caption
        channels = (model.visual.preprocess_cfg[name] for name in ("mean", "std"))
        self.mean, self.std = (255 * torch.tensor(each).to(device).view(1, 3, 1, 1) for each in channels)
        model.logit_scale.requires_grad_(config.arm not in ("fixed_temperature", "classes"))
        parameters = [parameter for module in modules.values() for parameter in module.parameters()]
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        # matrices first, because the norm of the gradient is summed in this order
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
        pixels = self.pixels(self.pairs.images(rows))
        tokens = self.captions(rows, self.number).to(self.device)
        with self.autocast():
            image, text = self.model.encode_image(pixels), self.model.encode_text(tokens)
        labels = torch.from_numpy(self.pairs.labels[rows]).to(self.device)
        return self.objective(image.float(), text.float(), labels, self.model)

    def batch(self, number: int) -> np.ndarray:
        """Return the indices of the images of a step."""
        return self.shuffled(number, len(self.pairs), self.config.batch_size)

    def captions(self, rows: np.ndarray, number: int) -> Tensor:
        """Return tokens (b, t): a random caption per image or, with probability `class_captions`, a prompt of its
        class."""
        random = self.stream(self.CAPTION, number)
        rows = self.captioned[rows]
        tokens = self.pairs.captions(rows, random.integers(2**31, size=len(rows)))
        chosen = np.flatnonzero(random.random(len(rows)) < self.config.class_captions)
        if len(chosen):
            several = len(self.prompts.tokens) // len(self.pairs.class_names)
            places = several * self.pairs.labels[rows[chosen]] + random.integers(several, size=len(chosen))
            tokens[torch.from_numpy(chosen)] = torch.from_numpy(self.prompts.tokens[places])
        return tokens

    def pixels(self, images: Tensor) -> Tensor:
        return (images.to(self.device).float() - self.mean) / self.std
