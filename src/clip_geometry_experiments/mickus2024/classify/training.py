"""Full-batch Adam on embeddings and a classifier, or on embeddings alone by triplets, and measurement of its states."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clip_geometry.geometry.statistics.moments import Moments, scatter
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import blocks, mean_row
from clip_geometry_experiments.kit.training import Trainer
from clip_geometry_experiments.mickus2024.classify import objectives
from clip_geometry_experiments.mickus2024.classify.config import TrainingConfig, known_measure
from clip_geometry_experiments.mickus2024.classify.task import ClassificationTask

LOSS, ACCURACY = "classify.loss", "classify.accuracy"


class LayerPlace(NamedTuple):
    """The measure, examples and layer that a number belongs to.

    Args:
        measure: Name of the measure.
        examples: "trained", "held out", or "shuffled labels" for training with randomly permuted labels.
        layer: "input" of the classifier, "hidden", or "output" for loss and accuracy.
    """

    measure: str
    examples: str = "trained"
    layer: str = "input"


class Classifier(nn.Module):
    """A linear layer on the concatenated embeddings of an example's items, or two layers with a ReLU between them."""

    def __init__(self, width: int, outputs: int, config: TrainingConfig, seed: int):
        super().__init__()
        deep = config.classifier == "two-layer"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # drawn on the CPU, so the weights are the same on every device
            self.first = nn.Linear(width, config.hidden if deep else outputs, bias=config.bias)
            self.second = nn.Linear(config.hidden, outputs, bias=config.bias) if deep else None
        with torch.no_grad():
            for parameter in self.parameters():
                parameter *= config.init_scale

    def forward(self, items: Float[Tensor, "m d"], examples: Int[Tensor, "n s"]) -> Float[Tensor, "n k"]:
        """Return the scores of the examples, (n, k)."""
        return self._first(items, examples) if self.second is None else self.second(self.hidden(items, examples))

    def hidden(self, items: Float[Tensor, "m d"], examples: Int[Tensor, "n s"]) -> Float[Tensor, "n h"]:
        """Return the activations after the ReLU of a two-layer classifier, (n, h)."""
        return self._first(items, examples).relu()

    def _first(self, items: Float[Tensor, "m d"], examples: Int[Tensor, "n s"]) -> Float[Tensor, "n k"]:
        """Return the output of the first layer, (n, k), computed per item and summed per example to save memory."""
        places = examples.shape[1]
        weight = self.first.weight.view(-1, items.shape[1])  # (k·s, d)
        scores = (weight @ items.T).view(-1, places, len(items))
        # indexing with [] would sum its gradient in no fixed order
        added = sum(functional.embedding(examples[:, place], scores[:, place].T) for place in range(places))
        return added if self.first.bias is None else added + self.first.bias  # pyright: ignore[reportReturnType]


class Model(nn.Module):
    """The trained parameters: the embeddings, and a classifier on them unless the loss is the triplet loss."""

    def __init__(self, task: ClassificationTask, config: TrainingConfig, seed: int):
        super().__init__()
        self.items = nn.Parameter(task.items.clone())
        self.classifier = Classifier(task.width, task.outputs, config, seed) if config.loss != "triplet" else None

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


def classification_loss(scores: Float[Tensor, "n k"], targets: Tensor) -> Float[Tensor, ""]:
    """Return the cross-entropy; for multi-hot targets (n, k), the mean binary one over examples and labels."""
    if targets.ndim == 2:
        return functional.binary_cross_entropy_with_logits(scores, targets)
    return functional.cross_entropy(scores, targets)


def triplet_loss(rows: Float[Tensor, "n w"], classes: Int[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return the mean of max(‖a − p‖ − ‖a − n‖, 0) over all triplets: −O_T divided by the number of triplets."""
    sizes = torch.bincount(classes).double()
    triplets = (sizes * (sizes - 1) * (len(rows) - sizes)).sum()
    return -objectives.triplet(rows, classes) / triplets.to(rows.device)


def accuracy(scores: Float[Tensor, "n k"], targets: Tensor) -> float:
    """Return the share of examples whose highest score is their class or, if multi-hot, with all labels correct."""
    correct = (scores.argmax(1) == targets) if targets.ndim == 1 else ((scores > 0) == (targets > 0)).all(1)
    return int(correct.sum()) / len(correct)


class ClassificationTrainer(Trainer):
    """Trains the embeddings of a task, and a classifier on them unless the loss is the triplet loss.

    Args:
        task: The task to train on.
        config: Config of the model and the optimizer.
        updates: Number of steps, each on all examples.
        seed: Seed of the initial weights of the classifier.
        unseen: Held-out examples, whose items are not trained; None for none.
        device: Device to train on.
    """

    Place = LayerPlace

    def __init__(
        self,
        task: ClassificationTask,
        config: TrainingConfig,
        *,
        updates: int,
        seed: int,
        unseen: ClassificationTask | None = None,
        device: torch.device | str = "cpu",
    ):
        self.model = Model(task, config, seed)
        super().__init__({"model": self.model}, config, steps=updates, seed=seed, device=device)
        self.task = task.to(self.device)
        self.unseen = None if unseen is None else unseen.to(self.device)
        self.items = self.model.items
        self.classifier = self.model.classifier
        self._classes = self.task.classes.to(self.device)
        self._computed: tuple[int, tuple[Tensor, Tensor | None]] | None = None
        self.optimize(self.model.parameters())

    @torch.enable_grad()
    def outputs(self) -> tuple[Tensor, Tensor | None]:
        """Return the loss, with its gradient, and the scores of the examples (None without a classifier).

        They are computed once per state: first they are measured, and then the step uses them.
        """
        if self._computed is None or self._computed[0] != self.number:
            scores = None if self.classifier is None else self.classifier(self.items, self.task.examples)
            if scores is None:
                loss = triplet_loss(self.task.inputs(self.items), self._classes)
            else:
                loss = classification_loss(scores, self.task.targets)
            self._computed = self.number, (loss, None if scores is None else scores.detach())
        return self._computed[1]

    def loss(self) -> tuple[Tensor, Tensor]:
        loss, _ = self.outputs()
        return loss, loss

    def rate(self, number: int) -> float:
        return self.config.lr


def recorded_updates(updates: int, every: int) -> list[int]:
    """Return the recorded updates: 0, every, 2·every, … and the last."""
    return sorted({*range(0, updates + 1, every), updates})


@dataclass(frozen=True)
class ClassificationCallback:
    """Measures a state of a `ClassificationTrainer`: loss, accuracy, and the named measures of every layer.

    Args:
        names: Names of the measures.
        sample: Maximum number of rows to measure, sampled again in every state; None measures all. The sample depends
            only on seed and update, so a resumed training draws the same one.
        seed: Seed of the samples.
    """

    names: Sequence[str]
    sample: int | None = None
    seed: int = 0

    def __call__(self, trainer: ClassificationTrainer) -> dict[LayerPlace, float]:
        loss, scores = trainer.outputs()
        with torch.no_grad():
            values = {LayerPlace(LOSS, layer="output"): float(loss)}
            if scores is not None:
                values[LayerPlace(ACCURACY, layer="output")] = accuracy(scores, trainer.task.targets)
            values |= self._layers(trainer, trainer.task, trainer.items.detach(), "trained")
            unseen = trainer.unseen
            if unseen is not None and trainer.classifier is not None:
                scores = trainer.classifier(unseen.items, unseen.examples)
                values[LayerPlace(LOSS, "held out", "output")] = float(classification_loss(scores, unseen.targets))
                values[LayerPlace(ACCURACY, "held out", "output")] = accuracy(scores, unseen.targets)
                values |= self._layers(trainer, unseen, unseen.items, "held out")
        return values

    def _layers(
        self, trainer: ClassificationTrainer, task: ClassificationTask, items: Float[Tensor, "m d"], examples: str
    ) -> dict[LayerPlace, float]:
        """Measure the input layer and the hidden layer in the present state of the training."""
        classifier = trainer.classifier
        number = trainer.number
        deep = classifier is not None and classifier.second is not None
        layers: dict[str, tuple[ClassificationTask, nn.Linear | None]] = {}  # each with the linear layer on top of it
        if examples == "trained" or number == 0:  # the items of held-out examples are never trained
            layers["input"] = replace(task, items=items), None if classifier is None or deep else classifier.first
        if classifier is not None and deep:
            hidden = classifier.hidden(items, task.examples)
            itself = torch.arange(len(hidden), device=hidden.device)[:, None]  # each example has a row of its own
            layers["hidden"] = replace(task, items=hidden, examples=itself), classifier.second
        return {
            LayerPlace(name, examples, layer): value
            for layer, (rows, linear) in layers.items()
            for name, value in self._of_layer(rows, linear, number, strict=layer == "input" and number == 0).items()
        }

    def _of_layer(
        self, task: ClassificationTask, linear: nn.Linear | None, update: int, *, strict: bool
    ) -> dict[str, float]:
        """Compute the measures of a layer; an undefined measure is NaN, or with `strict` raises its InputError.

        Args:
            task: The examples, with the rows of the layer as items.
            linear: The linear layer on top of the rows; its weights are the class vectors if the targets are class
                indices.
            update: Update of the state.
            strict: Whether an undefined measure is an error.
        """
        rng = np.random.default_rng([self.seed, update])
        sample = self._sample(rng, len(task.items))
        chosen = self._sample(rng, len(task.targets))
        device = task.items.device
        rows = task.items[sample.to(device)]
        inputs = task.inputs(task.items, chosen.to(device))
        targets = task.targets[chosen.to(task.targets.device)]
        classes = task.classes[chosen]
        values: dict[str, float] = {}
        moments: Moments | None = None
        for name in self.names:
            measure = known_measure(name)
            try:
                if measure.statistic is Moments:
                    moments = moments or _moments(rows, fourth="isoscore[unbiased]" in self.names)
                    values[name] = float(measure(moments))
                elif name == "objective_classifier" and linear is not None and not task.multi_label:
                    values[name] = float(measure(inputs, targets, linear.weight.detach()))
                else:
                    values[name] = float(measure(rows) if measure.takes == "rows" else measure(inputs, classes))
            except InputError:
                if strict:
                    raise
                values[name] = float("nan")
        return values

    def _sample(self, rng: np.random.Generator, n: int) -> Tensor:
        """Return the row indices of a random sample, or of all rows if there are too few to sample."""
        if self.sample is None or n <= self.sample:
            return torch.arange(n)
        return torch.from_numpy(np.sort(rng.choice(n, self.sample, replace=False)))


def _moments(x: Float[Tensor, "n d"], *, fourth: bool) -> Moments:
    """Compute moments with M2 from float32 products, as `scatter` does for wide rows.

    `Moments.of` uses float64 products. The third and fourth moments, which only isoscore[unbiased] needs, are NaN
    unless `fourth` is true.
    """
    m2 = scatter(x)
    mean = t = torch.full_like(m2[0], torch.nan)
    q = mean[0]
    if fourth:
        mean = mean_row(x)
        sums = []
        for block in blocks(x, 512):
            centered = block - mean
            squares = centered.square().sum(1)
            sums.append((squares @ centered, squares.square().sum()))
        t, q = (torch.stack(parts).sum(0) for parts in zip(*sums, strict=True))
    return Moments(len(x), mean, m2, t, q)
