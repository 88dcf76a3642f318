"""The training itself: AdamW on transformer and head, resumable at any step."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from clip_geometry.experiments.kit.adamw import decay_groups
from clip_geometry.experiments.kit.checkpoint import Checkpoint
from clip_geometry.experiments.rudman2024.finetune.config import OptimizerConfig
from clip_geometry.experiments.rudman2024.finetune.inputs import Inputs
from clip_geometry.experiments.rudman2024.finetune.method import TOP, Method, Penalty
from clip_geometry.experiments.rudman2024.finetune.model import FineTuned
from clip_geometry.experiments.rudman2024.finetune.spans import span_loss
from clip_geometry.transforms import AllButTheTop

ORDER, DROPOUT, SAMPLE = range(3)  # what a random number is for: each has streams of its own
FITTED_TOKENS = 20_000  # of spans, whose rows are tokens: what all-but-the-top is fitted on


class Training:
    """One seed of one method. number: how many steps there were; losses: of the task, of each of them.

    A step depends on the seed and its number only: the batches of an epoch, the dropout of a step and the sentences
    behind C_0 have random numbers of their own. all_but_the_top is a plain training and then, the transformer fixed,
    epochs of the head alone on post-processed rows: one.
    """

    def __init__(
        self,
        model: FineTuned,
        inputs: Inputs,
        config: OptimizerConfig,
        method: Method,
        *,
        seed: int,
        device: Any = "cpu",
    ):
        self.device = torch.device(device)
        self.model, self.inputs, self.config, self.method, self.seed = (
            model.to(self.device),
            inputs,
            config,
            method,
            seed,
        )
        self.penalty = Penalty(method, config.zeta).to(self.device)
        self.number, self.losses = 0, []
        self.epoch_steps = math.ceil(len(inputs) / config.batch_size)
        self.plain_steps = config.epochs * self.epoch_steps  # those of transformer and head
        self.steps = self.plain_steps + (self.epoch_steps if method.name == TOP else 0)
        # fused: one pass over all numbers
        self.optimizer = torch.optim.AdamW(
            decay_groups(model.parameters(), config.weight_decay), lr=config.lr, fused=True
        )

    # --- a step

    def step(self) -> None:
        """One update. Before the first of an epoch C_0 is taken anew, before the first of the head alone the map."""
        epoch, place = divmod(self.number, self.epoch_steps)
        if self.number == self.plain_steps:
            self._post_process(*self._fitted())
        elif place == 0:
            self.penalty.refresh(lambda: self._hidden(epoch))
        loss, total = self.loss(self._batch(epoch, place))
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        if self.config.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.number)
        self.optimizer.step()
        self.losses.append(float(loss))
        self.number += 1

    def loss(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """(that of the task, that with what the method adds) of some windows, with the dropout of this step."""
        given, targets = self.inputs.batch(rows, self.device)
        self.model.train()
        if self.number >= self.plain_steps:
            self.model.transformer.eval()
        with self._dropout(), self.autocast():
            output = self.model(given)
        mask = given["attention_mask"]
        loss = task_loss(output.scores.float(), targets, mask)
        added = self.penalty(output.hidden, mask)
        return loss.detach(), loss if added is None else loss + added

    def rate(self, number: int) -> float:
        """The learning rate of a step: up from 0 over the warm-up, then down to 0, or constant."""
        if number >= self.plain_steps:
            return self.config.head_lr
        warm = round(self.config.warmup * self.plain_steps)
        if number < warm:
            return self.config.lr * (number + 1) / warm
        left = (self.plain_steps - number) / (self.plain_steps - warm)
        return self.config.lr * (left if self.config.schedule == "linear" else 1)

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16")

    def _batch(self, epoch: int, place: int) -> np.ndarray:
        order = self._random(ORDER, epoch).permutation(len(self.inputs))
        return order[place * self.config.batch_size : (place + 1) * self.config.batch_size]

    def _random(self, purpose: int, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose, number])

    @contextmanager
    def _dropout(self) -> Iterator[None]:
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int(self._random(DROPOUT, self.number).integers(2**62)))
            yield

    # --- what is taken of training sentences

    def _seen(self, rows: np.ndarray) -> Iterator[tuple[Any, Tensor]]:
        """(output, mask) of windows, a batch at a time, without dropout."""
        self.model.eval()
        with torch.no_grad():
            for part in self.inputs.batches(rows, self.config.batch_size):
                given, _ = self.inputs.batch(part, self.device)
                with self.autocast():
                    output = self.model(given)
                yield output, given["attention_mask"]

    def _sampled(self, epoch: int) -> np.ndarray:
        """Random windows with about refresh_sample tokens."""
        return self.inputs.sample(self.config.refresh_sample, self._random(SAMPLE, epoch))

    def _hidden(self, epoch: int) -> Iterator[tuple[list[Tensor], Tensor]]:
        for output, mask in self._seen(self._sampled(epoch)):
            yield list(output.hidden), mask

    def _fitted(self) -> tuple[Tensor, Tensor]:
        """All-but-the-top of what goes into the head: (W, b). Of all training sentences, or (spans) of the tokens of
        random windows with about FITTED_TOKENS of them."""
        spans, rows = self.model.spans, []
        windows = self.inputs.sample(FITTED_TOKENS if spans else None, self._random(SAMPLE, self.config.epochs))
        for output, mask in self._seen(windows):
            kept = output.hidden[-1][mask.bool()] if spans else output.sentences
            rows.append(kept.float().cpu())
        weights, shift = AllButTheTop(int(self.method.value)).fit(torch.cat(rows).numpy()).weights()
        return torch.from_numpy(weights), torch.from_numpy(shift)

    def _post_process(self, weights: Tensor, shift: Tensor) -> None:
        self.model.post_process(weights, shift)
        self.model.transformer.requires_grad_(False)
        self.model.zero_grad(set_to_none=True)  # what is left of the last step would count when gradients are clipped
        head = self.model.head.parameters()
        self.optimizer = torch.optim.AdamW(head, lr=self.config.head_lr, weight_decay=0.0, fused=True)

    # --- its state

    def state(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "losses": self.losses,
            "model": self.model.state_dict(),
            "penalty": self.penalty.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.number, self.losses = state["number"], list(state["losses"])
        if self.number > self.plain_steps:
            self._post_process(state["model"]["weights"], state["model"]["shift"])
        self.model.load_state_dict(state["model"])
        self.penalty.load_state_dict(state["penalty"])
        self.optimizer.load_state_dict(state["optimizer"])


def task_loss(scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy of classes; squared error of scores; of spans cross-entropy of first and last token."""
    if scores.ndim == 3:
        return span_loss(scores, targets, mask)
    if targets.is_floating_point():
        return functional.mse_loss(scores.squeeze(-1), targets)
    return functional.cross_entropy(scores, targets)


def train(
    training: Training,
    checkpoint: Checkpoint | None = None,
    advance: Callable[[int], object] = lambda done: None,
) -> None:
    """To the last step. checkpoint: written when it is due, and not removed at the end. advance: called with 1 after
    each step."""
    while training.number < training.steps:
        training.step()
        advance(1)
        if checkpoint is not None and checkpoint.is_due():
            checkpoint.save(training.state())
