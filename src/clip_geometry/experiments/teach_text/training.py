"""Distillation (Carlsson et al. 2022): the student's rows of texts in any language approach, by mean squared error, the
teacher's rows of the same texts in its own language."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from clip_geometry.experiments.kit.clip_training import OptimizerConfig
from clip_geometry.experiments.kit.training import ORDER, Trainer, learning_rate
from clip_geometry.experiments.teach_text.data import Texts
from clip_geometry.experiments.teach_text.model import Student
from clip_geometry.registry import InputError

PARTS = 4  # forward passes of a batch, each of texts of about equal length


class Place(NamedTuple):
    """What a number is of.

    Args:
        measure: its name.
        language: of the texts.
        classes: "all", or for zero-shot the classes of the images: "seen" in training or "held out".
    """

    measure: str
    language: str
    classes: str = "all"


class DistillationTrainer(Trainer):
    """Trains a student on its teacher's rows.

    Each language has epochs of its own. Batches are whole: the rest of an epoch is not used in it.

    Args:
        student: a text tower.
        captions: language → texts with targets.
        prompts: language → class prompts with targets, which make up the share `class_captions`; may be empty.
        config: of the optimizer.
        seed: of batches and prompts.
        device: where.
    """

    Place = Place
    PROMPT = 1

    def __init__(
        self,
        student: Student,
        captions: Mapping[str, Texts],
        prompts: Mapping[str, Texts],
        config: OptimizerConfig,
        *,
        seed: int,
        device: torch.device,
    ):
        self.student, self.captions, self.prompts = student, captions, prompts
        self.each = config.batch_size // len(captions)
        for language, texts in captions.items():
            if len(texts) < self.each:
                raise InputError(
                    f"batch_size is {config.batch_size}, {self.each} texts in each language, but there are "
                    f"{len(texts)} captions in {language!r}; expected at most as many, batches are whole"
                )
        super().__init__(
            {"student": student},
            config,
            steps=config.steps,
            seed=seed,
            device=device,
            precision=config.precision,
            clip=config.clip,
        )
        self.optimize(student.parameters(), weight_decay=config.weight_decay, betas=(0.9, config.beta2))

    def rate(self, number: int) -> float:
        config = self.config
        return learning_rate(number, steps=config.steps, lr=config.lr, warmup=config.warmup)

    def loss(self) -> tuple[Tensor, Tensor]:
        self.student.train()
        loss = self.batch_loss(*self.batch(self.number))
        return loss, loss

    def batch_loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        by_length = self.student.lengths(tokens).argsort(stable=True)  # so that short ones get little padding
        with self.autocast():
            rows = torch.cat([self.student(tokens[part].to(self.device)) for part in by_length.chunk(PARTS)])
        return nn.functional.mse_loss(rows.float(), targets[by_length].to(self.device))

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """(b, t) tokens of a step and (b, d) rows of the teacher, one language after the other."""
        parts = [self._texts(k, language, number) for k, language in enumerate(self.captions)]
        tokens, targets = zip(*parts, strict=True)
        return torch.cat(tokens), torch.cat(targets)

    def _texts(self, k: int, language: str, number: int) -> tuple[Tensor, Tensor]:
        """Captions in the order of an epoch, some of them replaced by class prompts."""
        texts = self.captions[language]
        epoch, place = divmod(number, len(texts) // self.each)
        order = self.stream(ORDER, k, epoch).permutation(len(texts))
        rows = np.sort(order[place * self.each : (place + 1) * self.each])
        tokens, targets = texts.tokens[rows], texts.targets(rows)
        random = self.stream(self.PROMPT, k, number)
        chosen = np.flatnonzero(random.random(self.each) < self.config.class_captions)
        if len(chosen) and self.prompts:
            prompts = self.prompts[language]
            which = random.integers(len(prompts), size=len(chosen))
            tokens[chosen], targets[torch.from_numpy(chosen)] = prompts.tokens[which], prompts.targets(which)
        return torch.from_numpy(tokens.astype(np.int64)), targets
