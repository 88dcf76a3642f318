"""Teacher learning (Carlsson et al. 2022): the student's rows of texts in any language go to the teacher's rows of what
they say, by mean squared error; resumable at any step with the identical continuation."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from clip_geometry.experiments.kit.adamw import decay_groups
from clip_geometry.experiments.kit.schedule import rate
from clip_geometry.experiments.teach_text.data import Texts
from clip_geometry.experiments.teach_text.model import Student
from clip_geometry.experiments.train_clip.config import OptimizerConfig
from clip_geometry.experiments.train_clip.training import precision
from clip_geometry.registry import InputError

PARTS = 4  # of a batch that go through the student one after the other, of about equal length
ORDER, PROMPT = range(2)  # what a random number is for: each has streams of its own


class Place(NamedTuple):
    """What a number is of. classes: all, or of zero-shot those of the pictures, seen in training or held out."""

    measure: str
    language: str
    classes: str = "all"


Trajectory = dict[Place, list[float]]


class Teaching:
    """number: how many steps there were; losses: of each of them.

    captions, prompts: language → texts that are learnt; those of prompts, where there are any, take the share
    `class_captions`. A step depends on the seed and its number only: the order of an epoch of a language and the
    prompts of a step have random numbers of their own. Batches are whole: what is left of an epoch is not used in it.
    """

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
        self.device, self.config, self.seed = device, config, seed
        self.student = student.to(device)
        self.captions, self.prompts = captions, prompts
        self.each = config.batch_size // len(captions)
        for language, texts in captions.items():
            if len(texts) < self.each:
                raise InputError(
                    f"batch_size is {config.batch_size}, {self.each} texts in each language, but there are "
                    f"{len(texts)} captions in {language!r}; expected at most as many, batches are whole"
                )
        self.number, self.losses = 0, []
        groups = decay_groups(student.parameters(), config.weight_decay)
        self.optimizer = torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, config.beta2), fused=True)

    # --- a step

    def step(self) -> None:
        tokens, targets = self.batch(self.number)
        self.student.train()
        loss = self.loss(tokens, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.config.clip is not None:
            nn.utils.clip_grad_norm_(self.student.parameters(), self.config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.config, self.number)
        self.optimizer.step()
        self.losses.append(float(loss.detach()))
        self.number += 1

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        by_length = self.student.lengths(tokens).argsort(stable=True)  # short ones are not padded far
        with self.autocast():
            rows = torch.cat([self.student(tokens[part].to(self.device)) for part in by_length.chunk(PARTS)])
        return nn.functional.mse_loss(rows.float(), targets[by_length].to(self.device))

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """(b, t) tokens and the (b, d) rows that they should give, one language after the other."""
        parts = [self._texts(k, language, number) for k, language in enumerate(self.captions)]
        tokens, targets = zip(*parts, strict=True)
        return torch.cat(tokens), torch.cat(targets)

    def _texts(self, k: int, language: str, number: int) -> tuple[Tensor, Tensor]:
        """Captions in the order of an epoch, some of which give their places to class prompts."""
        texts = self.captions[language]
        epoch, place = divmod(number, len(texts) // self.each)
        order = self._random(ORDER, k, epoch).permutation(len(texts))
        rows = np.sort(order[place * self.each : (place + 1) * self.each])
        tokens, targets = texts.tokens[rows], texts.targets(rows)
        random = self._random(PROMPT, k, number)
        chosen = np.flatnonzero(random.random(self.each) < self.config.class_captions)
        if len(chosen) and self.prompts:
            prompts = self.prompts[language]
            which = random.integers(len(prompts), size=len(chosen))
            tokens[chosen], targets[torch.from_numpy(chosen)] = prompts.tokens[which], prompts.targets(which)
        return torch.from_numpy(tokens.astype(np.int64)), targets

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=precision(self.config, self.device) == "bf16")

    def _random(self, purpose: int, k: int, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose, k, number])

    # --- its state

    def state(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "losses": self.losses,
            "student": self.student.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.number, self.losses = state["number"], list(state["losses"])
        self.student.load_state_dict(state["student"])
        self.optimizer.load_state_dict(state["optimizer"])
