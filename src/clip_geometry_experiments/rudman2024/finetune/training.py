"""Fine-tuning with a penalty on isotropy: AdamW on transformer and head; all_but_the_top then retrains the head."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from clip_geometry.training.losses import CosReg, IStar
from clip_geometry.transforms import AllButTheTop
from clip_geometry_experiments.kit.training import ORDER, Trainer, learning_rate
from clip_geometry_experiments.rudman2024.finetune.config import COSREG, I_STAR, TOP, FinetuneOptimizerConfig, Method
from clip_geometry_experiments.rudman2024.finetune.data import Windows
from clip_geometry_experiments.rudman2024.finetune.model import FineTuned, Output

HEAD_LR = 1e-3  # in the epoch in which all-but-the-top trains the head alone
FITTED_TOKENS = 20_000  # number of tokens that all-but-the-top is fitted on for spans


class FineTuningTrainer(Trainer):
    """Trains with one method and one seed.

    I-STAR adds λ (1 − IsoScore*) of all layers to the task loss, and CosReg adds λ × mean cosine of the last layer.
    all_but_the_top is plain training, followed by an epoch that trains only the head on post-processed rows, with the
    transformer fixed.

    Args:
        model: Transformer and head.
        inputs: Training windows.
        config: Config of the optimizer and the penalty.
        method: What is added to the loss, or done after the training.
        seed: Seed of batches, dropout and the samples for C_0.
        device: Device to train on.
    """

    DROPOUT, SAMPLE = 1, 2

    def __init__(
        self,
        model: FineTuned,
        inputs: Windows,
        config: FinetuneOptimizerConfig,
        method: Method,
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ):
        self.model, self.inputs, self.method = model, inputs, method
        self.penalty: IStar | CosReg | None = None
        if method.name == I_STAR:
            self.penalty = IStar(method.value, zeta=config.zeta)
        elif method.name == COSREG:
            self.penalty = CosReg(method.value)
        modules = {"model": model} if self.penalty is None else {"model": model, "penalty": self.penalty}
        self.epoch_steps = math.ceil(len(inputs) / config.batch_size)
        self.plain_steps = config.epochs * self.epoch_steps  # steps that train transformer and head
        steps = self.plain_steps + (self.epoch_steps if method.name == TOP else 0)
        super().__init__(modules, config, steps=steps, seed=seed, device=device)
        self.optimize(model.parameters(), weight_decay=config.weight_decay)

    def rate(self, number: int) -> float:
        if number >= self.plain_steps:
            return HEAD_LR
        config = self.config
        return learning_rate(number, steps=self.plain_steps, lr=config.lr, warmup=config.warmup, schedule="linear")

    def step(self) -> None:
        """Take a step, refreshing C_0 before each epoch and fitting all-but-the-top before the epoch of the head."""
        epoch, place = divmod(self.number, self.epoch_steps)
        if self.number == self.plain_steps:
            self._train_head(*self.fitted())
        elif place == 0 and isinstance(self.penalty, IStar):
            windows = self.sample(self.config.refresh_sample, epoch)
            self.penalty.refresh((list(output.hidden), mask) for output, mask in self._outputs(windows))
        super().step()

    def loss(self) -> tuple[Tensor, Tensor]:
        size = self.config.batch_size
        epoch, place = divmod(self.number, self.epoch_steps)
        rows = self.stream(ORDER, epoch).permutation(len(self.inputs))[place * size : (place + 1) * size]
        inputs, targets = self.inputs.batch(rows, self.device)
        self.model.train()
        if self.number >= self.plain_steps:
            self.model.transformer.eval()
        with self.autocast():
            output = self.model(inputs)
        mask = inputs["attention_mask"]
        loss = task_loss(output.scores.float(), targets, mask)
        if self.penalty is None:
            return loss, loss
        hidden = list(output.hidden) if isinstance(self.penalty, IStar) else output.hidden[-1]
        return loss, loss + self.penalty(hidden, mask)

    # --- what is computed on training sentences

    def sample(self, tokens: int | None, epoch: int) -> np.ndarray:
        """Return random windows with about this many tokens; None returns all."""
        return self.inputs.sample(tokens, self.stream(self.SAMPLE, epoch))

    def _outputs(self, windows: np.ndarray) -> Iterator[tuple[Output, Tensor]]:
        """Yield output and mask, batch by batch, without dropout."""
        self.model.eval()
        with torch.no_grad():
            for rows in self.inputs.batches(windows, self.config.batch_size):
                inputs, _ = self.inputs.batch(rows, self.device)
                with self.autocast():
                    output = self.model(inputs)
                yield output, inputs["attention_mask"]

    def fitted(self) -> tuple[Tensor, Tensor]:
        """Return (W, b) of all-but-the-top, fitted on the inputs of the head: all training sentences or, for spans, the
        tokens of random windows."""
        spans = self.model.spans
        rows = []
        for output, mask in self._outputs(self.sample(FITTED_TOKENS if spans else None, self.config.epochs)):
            head_inputs = output.hidden[-1][mask.bool()] if spans else output.sentences
            rows.append(head_inputs.float().cpu())
        weights, shift = AllButTheTop(int(self.method.value)).fit(torch.cat(rows).numpy()).weights()
        return torch.from_numpy(weights), torch.from_numpy(shift)

    def _train_head(self, weights: Tensor, shift: Tensor) -> None:
        """Post-process the hidden states by weights and shift, and train only the head on them."""
        self.model.post_process(weights, shift)
        self.model.transformer.requires_grad_(False)
        self.model.zero_grad(set_to_none=True)
        self.optimize(self.model.head.parameters())

    def restore(self, state: Mapping[str, Any]) -> None:
        if state["number"] > self.plain_steps:
            self._train_head(state["modules"]["model"]["weights"], state["modules"]["model"]["shift"])
        super().restore(state)


def task_loss(scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the cross-entropy for classes, the squared error for scores, or `span_loss` for spans."""
    if scores.ndim == 3:
        return span_loss(scores, targets, mask)
    if targets.is_floating_point():
        return functional.mse_loss(scores.squeeze(-1), targets)
    return functional.cross_entropy(scores, targets)


def span_loss(scores: Float[Tensor, "b t 2"], targets: Tensor, mask: Tensor) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the first and last token among the tokens of a window; targets: (b, 2)."""
    known = scores.masked_fill(mask[..., None] == 0, -1e4)
    return functional.cross_entropy(known, targets)  # over tokens, the second axis of (b, t, 2)
