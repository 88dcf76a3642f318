"""The training itself: full-batch Adam on embeddings and classifier, every state measured, resumable at any update."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from clip_geometry.experiments.kit.checkpoint import Checkpoint, save_measured
from clip_geometry.experiments.mickus2024.classify.model import (
    Classifier,
    TrainingConfig,
    classification_loss,
    share_right,
    triplet_loss,
)
from clip_geometry.experiments.mickus2024.classify.problem import Problem
from clip_geometry.experiments.mickus2024.classify.states import Observer, Place, layers

LOSS, ACCURACY = "classify.loss", "classify.accuracy"
Trajectory = dict[Place, list[float]]


class Training:
    """One seed. update: how many there were. unseen: examples whose items are not trained, None for none."""

    def __init__(
        self, problem: Problem, config: TrainingConfig, *, seed: int, unseen: Problem | None = None, device: Any = "cpu"
    ):
        device = torch.device(device)
        self.config, self.update = config, 0
        self.problem, self.unseen = problem.to(device), None if unseen is None else unseen.to(device)
        self.items = nn.Parameter(self.problem.items.clone())
        self.classifier = None
        if config.loss == "cross-entropy":
            self.classifier = Classifier(problem.width, problem.outputs, config, seed).to(device)
        # fused: one pass over all numbers
        self.optimizer = torch.optim.Adam(self._parameters(), lr=config.lr, betas=config.betas, fused=True)
        self._classes = self.problem.classes.to(device)

    def _parameters(self) -> list[nn.Parameter]:
        return [self.items, *(() if self.classifier is None else self.classifier.parameters())]

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self._parameters())

    def outputs(self) -> tuple[Tensor, Tensor | None]:
        """(the loss, with its gradient; scores of the examples, None without a classifier)."""
        if self.classifier is None:
            return triplet_loss(self.problem.inputs(self.items), self._classes), None
        scores = self.classifier(self.items, self.problem.examples)
        return classification_loss(scores, self.problem.targets), scores.detach()

    def step(self, loss: Tensor) -> None:
        """One update by the gradient of the loss of this state."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.update += 1

    @torch.no_grad()
    def measured(self, loss: Tensor, scores: Tensor | None, observer: Observer) -> dict[Place, float]:
        """This state in numbers."""
        found = {Place(LOSS, layer="output"): float(loss)}
        if scores is not None:
            found[Place(ACCURACY, layer="output")] = share_right(scores, self.problem.targets)
        found |= self._observed(self.problem, self.items.detach(), "trained", observer)
        unseen = self.unseen
        if unseen is not None and self.classifier is not None:
            scored = self.classifier(unseen.items, unseen.examples)
            found[Place(LOSS, "held out", "output")] = float(classification_loss(scored, unseen.targets))
            found[Place(ACCURACY, "held out", "output")] = share_right(scored, unseen.targets)
            found |= self._observed(unseen, unseen.items, "held out", observer)
        return found

    def _observed(self, problem: Problem, items: Tensor, examples: str, observer: Observer) -> dict[Place, float]:
        found = {}
        for name, layer in layers(problem, items, self.classifier).items():
            if examples == "held out" and name == "input" and self.update > 0:
                continue  # nothing trains them, they stay as they are
            strict = self.update == 0 and name == "input"
            values = observer.of(layer, self.update, strict=strict)
            found |= {Place(measure, examples, name): value for measure, value in values.items()}
        return found

    def state(self) -> dict[str, Any]:
        return {
            "update": self.update,
            "items": self.items.detach(),
            "classifier": None if self.classifier is None else self.classifier.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.update = state["update"]
        with torch.no_grad():
            self.items.copy_(state["items"])
        if self.classifier is not None:
            self.classifier.load_state_dict(state["classifier"])
        self.optimizer.load_state_dict(state["optimizer"])


def recorded_updates(updates: int, every: int) -> list[int]:
    """0, every, 2·every, … and the last."""
    return sorted({*range(0, updates + 1, every), updates})


def train(
    training: Training,
    observer: Observer,
    *,
    updates: int,
    every: int = 1,
    trajectory: Trajectory | None = None,
    checkpoint: Checkpoint | None = None,
    advance: Callable[[int], object] = lambda done: None,
) -> Trajectory:
    """Place → its values in the states of `recorded_updates`. What nothing trains is there once, of the first state.

    trajectory: the states before training.update, as `resume` has them. checkpoint: written when it is due, and not
    removed at the end. advance: called with 1 after each update.
    """
    trajectory = {} if trajectory is None else trajectory
    while True:
        loss, scores = training.outputs()
        if training.update % every == 0 or training.update == updates:
            for place, value in training.measured(loss.detach(), scores, observer).items():
                trajectory.setdefault(place, []).append(value)
        if training.update == updates:
            return trajectory
        training.step(loss)
        advance(1)
        if checkpoint is not None and checkpoint.is_due():
            save_measured(checkpoint, training, trajectory)
