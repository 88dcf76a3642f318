"""The training itself: AdamW on both towers."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clip_geometry.experiments.kit.clip_training import OptimizerConfig
from clip_geometry.experiments.kit.training import ORDER, Trainer, learning_rate
from clip_geometry.experiments.train_clip.config import CLASSES, FIXED
from clip_geometry.experiments.train_clip.data import Pairs, Prompts
from clip_geometry.experiments.train_clip.model import Objective
from clip_geometry.registry import InputError

LARGEST_SCALE = 100.0  # 1/temperature stays between 1 and this, as in CLIP


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
    """

    Place = Place
    CAPTION, DROPOUT = 1, 2

    def __init__(
        self,
        model: Any,
        objective: Objective,
        pairs: Pairs,
        config: OptimizerConfig,
        *,
        mean: Tensor,
        std: Tensor,
        seed: int,
        device: torch.device,
        prompts: Prompts | None = None,
    ):
        if len(pairs) < config.batch_size:
            raise InputError(
                f"batch_size is {config.batch_size}, but there are {len(pairs)} pictures to train on; expected at most "
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
        self.mean, self.std = (255 * each.to(device).view(1, 3, 1, 1) for each in (mean, std))
        model.logit_scale.requires_grad_(objective.config.arm not in (FIXED, CLASSES))
        trained = [each for module in (model, objective) for each in module.parameters() if each.requires_grad]
        # matrices first: the norm of the gradient is a sum in this order
        trained.sort(key=lambda parameter: parameter.ndim <= 1)
        self.optimize(trained, weight_decay=config.weight_decay, betas=(0.9, config.beta2))

    def rate(self, number: int) -> float:
        config = self.config
        return learning_rate(number, steps=config.steps, lr=config.lr, warmup=config.warmup)

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
        random = self.stream(self.CAPTION, number)
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
