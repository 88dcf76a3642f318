"""Full-batch Adam on embeddings and a classifier, or on embeddings alone by triplets, and the records of its states."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clip_geometry.geometry.statistics.moments import Moments, scatter
from clip_geometry.geometry.uncertainty import jackknife
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry.rows.matrix import blocks, mean_row
from clip_geometry_experiments.kit.training import (
    Trainer,
    Values,
    correlation_rows,
    correlations,
    curves_by,
    trajectory,
)
from clip_geometry_experiments.mickus2024.classify import objectives
from clip_geometry_experiments.mickus2024.classify.task import (
    ClassificationTask,
    ClassifyConfig,
    Loaded,
    TrainingConfig,
    known_measure,
)

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


# --- result rows

SEED = "classifier.seed"  # seed of the initial weights; a row's own `seed` is for samples and held-out examples

KINDS = ("silhouette", "isoscore")  # measures that are correlated
SHUFFLED = "shuffled labels"

Curves = dict[LayerPlace, Values]  # LayerPlace → values (seeds, states)


def state_row(config: ClassifyConfig, loaded: Loaded, place: LayerPlace, values: Sequence[float], seed: int) -> Record:
    """Return one row with all states of a number in `trajectory`, None where undefined; its value is the last."""
    states = trajectory(values)
    n, d = _size(config, loaded, place)
    at = {**config.options(), SEED: seed, "examples": place.examples, "layer": place.layer}
    if place.examples == "held out" and place.layer == "input":
        note = "nothing trains these rows: the same in all states"
        return Record(place.measure, states[-1], n=n, d=d, at={**at, "update": 0}, note=note)
    fields: Row = {"at": {**at, "update": config.updates}, "trajectory": states, "every": config.measure_every}
    fields |= {} if states[-1] is not None else {"note": "not defined in the last state"}
    return Record(place.measure, states[-1], n=n, d=d, **fields)


def _size(config: ClassifyConfig, loaded: Loaded, place: LayerPlace) -> tuple[int, int | None]:
    """Return the n and d of the rows that are measured at a place."""
    task = loaded.unseen if place.examples == "held out" else loaded.trained
    assert task is not None  # otherwise no such place exists
    if place.layer == "output":
        return len(task.examples), None
    unpaired = place.layer == "input" and known_measure(place.measure).takes == "rows"
    n = len(task.items if unpaired else task.examples)
    d = task.items.shape[1] if unpaired else task.width
    return min(n, config.sample or n), d if place.layer == "input" else config.hidden


def layer_correlation_rows(config: ClassifyConfig, curves: Curves, seed: int | str) -> Iterator[Row]:
    """Compute correlations over all states of the seeds in `curves`, for every trained layer.

    Every silhouette is correlated with the first IsoScore, and the first silhouette with every IsoScore. For several
    seeds, `seed_values` holds the correlation within each seed, and the standard error is that of the pooled
    correlation, by the jackknife over seeds. If shuffled labels were trained, `null_values` holds their correlation
    within each seed, and the null value is the mean of these: each seed permutes the labels differently, so pooling
    states across seeds would mix their curves.
    """
    silhouettes, scores = ([name for name in config.measures if kind_of(name) == kind] for kind in KINDS)
    pairs = [(x, y) for x in silhouettes for y in scores if x == silhouettes[0] or y == scores[0]]
    for layer in dict.fromkeys(place.layer for place in curves if place.layer != "output"):
        for pair in pairs:
            x, y = (curves[LayerPlace(name, layer=layer)] for name in pair)
            places = [LayerPlace(name, SHUFFLED, layer) for name in pair]
            null = [curves[place] for place in places if place in curves]
            at = {**config.options(), SEED: seed, "layer": layer, "of": pair[0], "with": pair[1]}
            names = ("pearson", "spearman", "pearson_log")
            for row in correlation_rows("classify", x.ravel(), y.ravel(), names, at=at):
                name = row["measure"].partition(".")[2]
                yield row if len(x) == 1 else {**row, **_over_seeds(name, x, y, null)}


def of_seeds(x: Values, y: Values, name: str = "pearson") -> list[float]:
    """Compute a correlation over the states of each seed, leaving out seeds where it is undefined."""
    by_seed = [correlations(silhouette, score)[name] for silhouette, score in zip(x, y, strict=True)]
    return [value for value in by_seed if value is not None]


def _over_seeds(name: str, x: Values, y: Values, null: Sequence[Values]) -> Row:
    """Return the fields that a row of several seeds adds to the pooled correlation.

    `null` holds the curves of shuffled labels, or is empty if these were not trained.
    """
    by_seed = of_seeds(x, y, name)
    row: Row = {"seed_values": by_seed}
    without = [
        correlations(np.delete(x, seed, axis=0).ravel(), np.delete(y, seed, axis=0).ravel())[name]
        for seed in range(len(x))
    ]
    defined = [value for value in without if value is not None]
    if len(defined) == len(x):
        row["standard_error"] = jackknife(defined)
    shuffled = of_seeds(null[0], null[1], name) if null else []
    if not shuffled:
        return row
    ranges = [f"{min(values):.3f} to {max(values):.3f}" for values in (by_seed, shuffled) if values]
    note = f"{ranges[0]} in single seeds, {ranges[-1]} with shuffled labels (the null)".replace("-", "\N{MINUS SIGN}")
    return row | {"null_values": shuffled, "null_value": statistics.fmean(shuffled), "note": note}


def deviation_rows(config: ClassifyConfig, curves: Curves) -> Iterator[Record]:
    """Compute the standard deviation (n − 1) over seeds of silhouettes, IsoScores, loss and accuracy: the largest and
    the mean over the states."""
    for place, values in curves.items():
        reported = (place.layer == "output" or kind_of(place.measure) in KINDS) and place.examples != SHUFFLED
        if reported and len(values) > 1 and np.isfinite(values).all():
            at = {**config.options(), "of": place.measure, "examples": place.examples, "layer": place.layer}
            spread = values.std(axis=0, ddof=1)
            for name, value in (("largest", spread.max()), ("mean", spread.mean())):
                yield Record(f"classify.{name}_deviation", float(value), n=len(values), at=at)


def size_rows(config: ClassifyConfig, task: ClassificationTask) -> Iterator[Record]:
    parameters = Model(task, config, seed=0).parameter_count
    for name, value in (("examples", len(task.examples)), ("items", len(task.items)), ("parameters", parameters)):
        yield Record(f"classify.{name}", value, at=config.options())


def curves_of(rows: Iterable[Mapping[str, Any]]) -> Curves:
    """Collect the states in these rows, NaN where a number is undefined; seeds keep the order of the rows."""
    return curves_by(lambda row: LayerPlace(row["measure"], row["at"]["examples"], row["at"]["layer"]), rows)


def correlated(measures: Sequence[str]) -> tuple[str, ...]:
    """Return the measures that enter correlations."""
    return tuple(name for name in measures if kind_of(name) in KINDS)


def kind_of(measure: str) -> str:
    """Return the base name of a measure, without the variant in brackets."""
    return measure.partition("[")[0]
