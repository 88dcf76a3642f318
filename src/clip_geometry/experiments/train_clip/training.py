"""The training itself: AdamW on both towers, resumable at any step with the identical continuation."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from clip_geometry.experiments.kit.adamw import decay_groups
from clip_geometry.experiments.kit.schedule import rate
from clip_geometry.experiments.train_clip.config import OptimizerConfig
from clip_geometry.experiments.train_clip.data import Pairs, Prompts
from clip_geometry.experiments.train_clip.model import Objective, limit_scale, prepare_scale
from clip_geometry.registry import InputError

FULL = "fp32"
ORDER, CAPTION, DROPOUT = range(3)  # what a random number is for: each has streams of its own


class Place(NamedTuple):
    """What a number is of. modality: image, text, both. classes: all, or of zero-shot those of the pictures, seen in
    training or held out."""

    measure: str
    modality: str = "both"
    classes: str = "all"


Trajectory = dict[Place, list[float]]


class Training:
    """number: how many steps there were; losses: of each of them, without what a penalty adds.

    A step depends on the seed and its number only: the order of an epoch, the captions of a step and what a model drops
    out in it have random numbers of their own. Batches are whole, since a contrastive loss depends on their size: what
    is left of an epoch is not used in it.
    """

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
        self.device = device
        self.model = model.to(device=device, memory_format=torch.channels_last)
        self.objective = objective.to(device)
        self.pairs, self.config, self.seed, self.prompts = pairs, config, seed, prompts
        self.mean, self.std = (255 * each.to(device).view(1, 3, 1, 1) for each in (mean, std))
        if len(pairs) < config.batch_size:
            raise InputError(
                f"batch_size is {config.batch_size}, but there are {len(pairs)} pictures to train on; expected at most "
                "as many, batches are whole"
            )
        self.epoch_steps = len(pairs) // config.batch_size
        self.number, self.losses = 0, []
        prepare_scale(model, objective.config.arm)
        trained = (each for module in (model, objective) for each in module.parameters() if each.requires_grad)
        # fused: one pass over all numbers
        self.optimizer = torch.optim.AdamW(
            decay_groups(trained, config.weight_decay), lr=config.lr, betas=(0.9, config.beta2), fused=True
        )

    # --- a step

    def step(self) -> None:
        rows = self.batch(self.number)
        self.model.train()
        self.objective.train()
        with self._dropout():
            image, text = self.embedded(rows, self.captions(rows, self.number))
        labels = torch.from_numpy(self.pairs.labels[rows]).to(self.device)
        loss, total = self.objective(image, text, labels, self.model)
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        if self.config.clip is not None:
            nn.utils.clip_grad_norm_(self._parameters(), self.config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.config, self.number)
        self.optimizer.step()
        limit_scale(self.model)
        self.losses.append(float(loss.detach()))
        self.require_finite(loss, f"the loss of step {self.number + 1}")
        self.number += 1

    def captions(self, rows: np.ndarray, number: int) -> Tensor:
        """(b, t) tokens of a step: a random caption of each picture, or with the chance `class_captions` a class's."""
        random = self._random(CAPTION, number)
        tokens = self.pairs.captions(rows, random.integers(2**31, size=len(rows)))
        chosen = np.flatnonzero(random.random(len(rows)) < self.config.class_captions)
        if len(chosen) and self.prompts is not None:
            several = len(self.prompts.tokens) // len(self.pairs.class_names)
            places = several * self.pairs.labels[rows[chosen]] + random.integers(several, size=len(chosen))
            tokens[torch.from_numpy(chosen)] = torch.from_numpy(self.prompts.tokens[places])
        return tokens

    def embedded(self, rows: np.ndarray, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """float32 embeddings of pictures and of tokens."""
        pixels = self.pixels(self.pairs.pictures(rows))
        with self.autocast():
            image = self.model.encode_image(pixels)
            text = self.model.encode_text(tokens.to(self.device))
        return image.float(), text.float()

    def pixels(self, pictures: Tensor) -> Tensor:
        return (pictures.to(self.device).float() - self.mean) / self.std

    def batch(self, number: int) -> np.ndarray:
        """The pictures of a step."""
        epoch, place = divmod(number, self.epoch_steps)
        order = self._random(ORDER, epoch).permutation(len(self.pairs))
        return np.sort(order[place * self.config.batch_size : (place + 1) * self.config.batch_size])

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=precision(self.config, self.device) != FULL)

    def require_finite(self, values: Tensor, what: str) -> None:
        """Raises InputError where the training has diverged."""
        if not bool(values.isfinite().all()):
            raise InputError(
                f"the training has diverged: {what} is not finite; choose a lr below {self.config.lr:g} or more warmup"
            )

    @contextmanager
    def _dropout(self) -> Iterator[None]:
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int(self._random(DROPOUT, self.number).integers(2**62)))
            yield

    def _random(self, purpose: int, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose, number])

    def _parameters(self) -> list[nn.Parameter]:
        return [each for group in self.optimizer.param_groups for each in group["params"]]

    # --- its state

    def state(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "losses": self.losses,
            "model": self.model.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.number, self.losses = state["number"], list(state["losses"])
        self.model.load_state_dict(state["model"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])


def precision(config: OptimizerConfig, device: torch.device) -> str:
    """Of the products on the way to the loss."""
    if config.precision != "auto":
        return config.precision
    return "bf16" if device.type == "cuda" else FULL
