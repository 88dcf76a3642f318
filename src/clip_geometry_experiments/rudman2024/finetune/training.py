"""Fine-tuning with a penalty on isotropy: AdamW on transformer and head, and for all_but_the_top on the head again."""

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

HEAD_LR = 1e-3  # of the epoch in which all-but-the-top trains the head alone
FITTED_TOKENS = 20_000  # for spans, whose rows are tokens: what all-but-the-top is fitted on


class FineTuningTrainer(Trainer):
    """Trains with one method and one seed.

    I-STAR adds λ (1 − IsoScore*) of all layers to the loss of the task, CosReg λ × mean cosine of the last one.
    all_but_the_top is a plain training, then an epoch of the head alone on post-processed rows, with the transformer
    fixed.

    Args:
        model: transformer and head.
        inputs: training windows.
        config: of optimizer and penalty.
        method: what is added to the loss, or done after the training.
        seed: of batches, dropout and the samples behind C_0.
        device: where.
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
        self.plain_steps = config.epochs * self.epoch_steps  # of transformer and head
        steps = self.plain_steps + (self.epoch_steps if method.name == TOP else 0)
        super().__init__(modules, config, steps=steps, seed=seed, device=device)
        self.optimize(model.parameters(), weight_decay=config.weight_decay)

    def rate(self, number: int) -> float:
        if number >= self.plain_steps:
            return HEAD_LR
        steps, config = self.plain_steps, self.config
        return learning_rate(number, steps=steps, lr=config.lr, warmup=config.warmup, schedule="linear")

    def step(self) -> None:
        """C_0 is refreshed before each epoch; the map of all-but-the-top is fitted before the epoch of the head."""
        epoch, place = divmod(self.number, self.epoch_steps)
        if self.number == self.plain_steps:
            self._train_head(*self.fitted())
        elif place == 0 and isinstance(self.penalty, IStar):
            windows = self.sample(self.config.refresh_sample, epoch)
            self.penalty.refresh((list(output.hidden), mask) for output, mask in self._seen(windows))
        super().step()

    def loss(self) -> tuple[Tensor, Tensor]:
        size = self.config.batch_size
        epoch, place = divmod(self.number, self.epoch_steps)
        rows = self.stream(ORDER, epoch).permutation(len(self.inputs))[place * size : (place + 1) * size]
        given, targets = self.inputs.batch(rows, self.device)
        self.model.train()
        if self.number >= self.plain_steps:
            self.model.transformer.eval()
        with self.autocast():
            output = self.model(given)
        mask = given["attention_mask"]
        loss = task_loss(output.scores.float(), targets, mask)
        if self.penalty is None:
            return loss, loss
        hidden = list(output.hidden) if isinstance(self.penalty, IStar) else output.hidden[-1]
        return loss, loss + self.penalty(hidden, mask)

    # --- what is computed on training sentences

    def sample(self, tokens: int | None, epoch: int) -> np.ndarray:
        """Random windows with about this many tokens, None for all."""
        return self.inputs.sample(tokens, self.stream(self.SAMPLE, epoch))

    def _seen(self, windows: np.ndarray) -> Iterator[tuple[Output, Tensor]]:
        """(output, mask), a batch at a time, without dropout."""
        self.model.eval()
        with torch.no_grad():
            for rows in self.inputs.batches(windows, self.config.batch_size):
                given, _ = self.inputs.batch(rows, self.device)
                with self.autocast():
                    output = self.model(given)
                yield output, given["attention_mask"]

    def fitted(self) -> tuple[Tensor, Tensor]:
        """(W, b) of all-but-the-top, fitted on what goes into the head: all training sentences, or for spans the tokens
        of random windows."""
        spans, rows = self.model.spans, []
        for output, mask in self._seen(self.sample(FITTED_TOKENS if spans else None, self.config.epochs)):
            kept = output.hidden[-1][mask.bool()] if spans else output.sentences
            rows.append(kept.float().cpu())
        weights, shift = AllButTheTop(int(self.method.value)).fit(torch.cat(rows).numpy()).weights()
        return torch.from_numpy(weights), torch.from_numpy(shift)

    def _train_head(self, weights: Tensor, shift: Tensor) -> None:
        self.model.post_process(weights, shift)
        self.model.transformer.requires_grad_(False)
        self.model.zero_grad(set_to_none=True)
        self.optimize(self.model.head.parameters())

    def restore(self, state: Mapping[str, Any]) -> None:
        if state["number"] > self.plain_steps:
            self._train_head(state["modules"]["model"]["weights"], state["modules"]["model"]["shift"])
        super().restore(state)


def task_loss(scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy for classes, squared error for scores, and `span_loss` for spans."""
    if scores.ndim == 3:
        return span_loss(scores, targets, mask)
    if targets.is_floating_point():
        return functional.mse_loss(scores.squeeze(-1), targets)
    return functional.cross_entropy(scores, targets)


def span_loss(scores: Float[Tensor, "b t 2"], targets: Tensor, mask: Tensor) -> Float[Tensor, ""]:
    """Mean of the cross-entropies of first and last token among the tokens of a window; targets: (b, 2)."""
    known = scores.masked_fill(mask[..., None] == 0, -1e4)
    return functional.cross_entropy(known, targets)  # over tokens, which is the second of (b, t, 2)
