"""Full-batch Adam on embeddings and a classifier, or on embeddings alone by triplets; what is measured of a state."""

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
    """What a number is of.

    Args:
        measure: its name.
        examples: "trained", "held out", or "shuffled labels": trained with labels that were dealt at random.
        layer: "input" of the classifier, "hidden", or "output" for loss and accuracy.
    """

    measure: str
    examples: str = "trained"
    layer: str = "input"


class Classifier(nn.Module):
    """A linear layer on the embeddings of an example's items side by side, or two with a ReLU between."""

    def __init__(self, width: int, outputs: int, config: TrainingConfig, seed: int):
        super().__init__()
        deep = config.classifier == "two-layer"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # drawn on the CPU, so that they are the same on every device
            self.first = nn.Linear(width, config.hidden if deep else outputs, bias=config.bias)
            self.second = nn.Linear(config.hidden, outputs, bias=config.bias) if deep else None
        with torch.no_grad():
            for parameter in self.parameters():
                parameter *= config.init_scale

    def forward(self, items: Float[Tensor, "m d"], examples: Int[Tensor, "n s"]) -> Float[Tensor, "n k"]:
        """Scores of the examples."""
        return self._first(items, examples) if self.second is None else self.second(self.hidden(items, examples))

    def hidden(self, items: Float[Tensor, "m d"], examples: Int[Tensor, "n s"]) -> Float[Tensor, "n h"]:
        """After the ReLU of a two-layer classifier."""
        return self._first(items, examples).relu()

    def _first(self, items: Float[Tensor, "m d"], examples: Int[Tensor, "n s"]) -> Float[Tensor, "n k"]:
        """The layer on each item, added up by example: (n, s·d) inputs, and their gradient, are never made."""
        places = examples.shape[1]
        weight = self.first.weight.view(-1, items.shape[1])  # (k·s, d)
        scores = (weight @ items.T).view(-1, places, len(items))
        # of a gather by [], the gradient would be summed in no fixed order
        added = sum(functional.embedding(examples[:, place], scores[:, place].T) for place in range(places))
        return added if self.first.bias is None else added + self.first.bias  # pyright: ignore[reportReturnType]


class Model(nn.Module):
    """What is trained: the embeddings, and a classifier on them unless the loss is the triplet loss."""

    def __init__(self, task: ClassificationTask, config: TrainingConfig, seed: int):
        super().__init__()
        self.items = nn.Parameter(task.items.clone())
        self.classifier = Classifier(task.width, task.outputs, config, seed) if config.loss != "triplet" else None

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


def classification_loss(scores: Float[Tensor, "n k"], targets: Tensor) -> Float[Tensor, ""]:
    """Cross-entropy; for multi-hot targets (n, k) binary cross-entropy, mean over examples and labels."""
    if targets.ndim == 2:
        return functional.binary_cross_entropy_with_logits(scores, targets)
    return functional.cross_entropy(scores, targets)


def triplet_loss(rows: Float[Tensor, "n w"], classes: Int[Tensor, " n"]) -> Float[Tensor, ""]:
    """Mean of max(‖a − p‖ − ‖a − n‖, 0) over all triplets: −O_T by their number."""
    sizes = torch.bincount(classes).double()
    triplets = (sizes * (sizes - 1) * (len(rows) - sizes)).sum()
    return -objectives.triplet(rows, classes) / triplets.to(rows.device)


def accuracy(scores: Float[Tensor, "n k"], targets: Tensor) -> float:
    """Fraction of examples whose highest score is their class; for multi-hot targets, with all labels right."""
    right = (scores.argmax(1) == targets) if targets.ndim == 1 else ((scores > 0) == (targets > 0)).all(1)
    return int(right.sum()) / len(right)


class ClassificationTrainer(Trainer):
    """Trains the embeddings of a task, and a classifier on them.

    Args:
        task: what is trained.
        config: of model and optimizer.
        updates: steps, each on all examples.
        seed: of the first weights of the classifier.
        unseen: examples whose items are not trained, None for none.
        device: where.
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
        self.task, self.unseen = task.to(self.device), None if unseen is None else unseen.to(self.device)
        self.items, self.classifier = self.model.items, self.model.classifier
        self._classes = self.task.classes.to(self.device)
        self._computed: tuple[int, tuple[Tensor, Tensor | None]] | None = None
        self.optimize(self.model.parameters())

    @torch.enable_grad()
    def outputs(self) -> tuple[Tensor, Tensor | None]:
        """(the loss, with its gradient; scores of the examples, None without a classifier), computed once in a state:
        they are measured, and then the step uses them."""
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
    """0, every, 2·every, … and the last."""
    return sorted({*range(0, updates + 1, every), updates})


@dataclass(frozen=True)
class ClassificationCallback:
    """Measures a state of a `ClassificationTrainer`: loss, accuracy, and the named measures of every layer.

    Args:
        names: the measures.
        sample: rows to measure, sampled again in every state, if there are more; None for all. The sample depends on
            seed and update only, so that a resumed training draws the same.
        seed: of the samples.
    """

    names: Sequence[str]
    sample: int | None = None
    seed: int = 0

    def __call__(self, trainer: ClassificationTrainer) -> dict[LayerPlace, float]:
        loss, scores = trainer.outputs()
        with torch.no_grad():
            found = {LayerPlace(LOSS, layer="output"): float(loss)}
            if scores is not None:
                found[LayerPlace(ACCURACY, layer="output")] = accuracy(scores, trainer.task.targets)
            found |= self._layers(trainer, trainer.task, trainer.items.detach(), "trained")
            unseen = trainer.unseen
            if unseen is not None and trainer.classifier is not None:
                scores = trainer.classifier(unseen.items, unseen.examples)
                found[LayerPlace(LOSS, "held out", "output")] = float(classification_loss(scores, unseen.targets))
                found[LayerPlace(ACCURACY, "held out", "output")] = accuracy(scores, unseen.targets)
                found |= self._layers(trainer, unseen, unseen.items, "held out")
        return found

    def _layers(
        self, trainer: ClassificationTrainer, task: ClassificationTask, items: Float[Tensor, "m d"], examples: str
    ) -> dict[LayerPlace, float]:
        classifier, number = trainer.classifier, trainer.number
        deep = classifier is not None and classifier.second is not None
        layers: dict[str, tuple[ClassificationTask, nn.Linear | None]] = {}  # with the linear layer on it
        if examples == "trained" or number == 0:  # nothing trains the items of held-out examples
            layers["input"] = replace(task, items=items), None if classifier is None or deep else classifier.first
        if classifier is not None and deep:
            hidden = classifier.hidden(items, task.examples)
            each = torch.arange(len(hidden), device=hidden.device)[:, None]
            layers["hidden"] = replace(task, items=hidden, examples=each), classifier.second
        return {
            LayerPlace(name, examples, layer): value
            for layer, (rows, linear) in layers.items()
            for name, value in self._of_layer(rows, linear, number, strict=layer == "input" and number == 0).items()
        }

    def _of_layer(
        self, task: ClassificationTask, linear: nn.Linear | None, update: int, *, strict: bool
    ) -> dict[str, float]:
        """The measures of a layer; NaN if one is undefined, unless `strict`, which lets its InputError through.

        Args:
            task: The examples, with the rows of the layer as items.
            linear: The linear layer on them, whose weights are class vectors where targets are class numbers.
            update: Of the state.
            strict: Whether an undefined measure is an error.
        """
        rng = np.random.default_rng([self.seed, update])
        sample = self._sample(rng, len(task.items))
        chosen = self._sample(rng, len(task.targets))
        rows, inputs = task.items[sample.to(task.items.device)], task.inputs(task.items, chosen.to(task.items.device))
        targets, classes = task.targets[chosen.to(task.targets.device)], task.classes[chosen]
        found: dict[str, float] = {}
        moments: Moments | None = None
        for name in self.names:
            measure = known_measure(name)
            try:
                if measure.statistic is Moments:
                    moments = moments or _moments(rows, fourth="isoscore[unbiased]" in self.names)
                    found[name] = float(measure(moments))
                elif name == "objective_classifier" and linear is not None and not task.multi_label:
                    found[name] = float(measure(inputs, targets, linear.weight.detach()))
                else:
                    found[name] = float(measure(*((rows,) if measure.takes == "rows" else (inputs, classes))))
            except InputError:
                if strict:
                    raise
                found[name] = float("nan")
        return found

    def _sample(self, rng: np.random.Generator, n: int) -> Tensor:
        """Row numbers, of a sample or of all rows."""
        if self.sample is None or n <= self.sample:
            return torch.arange(n)
        return torch.from_numpy(np.sort(rng.choice(n, self.sample, replace=False)))


def _moments(x: Float[Tensor, "n d"], *, fourth: bool) -> Moments:
    """Moments with M2 by float32 products, as `scatter` of wide rows has it, where `Moments.of` takes float64 ones; the
    third and fourth moments, which only isoscore[unbiased] needs, or NaN."""
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
        t, q = (torch.stack(each).sum(0) for each in zip(*sums, strict=True))
    return Moments(len(x), mean, m2, t, q)
