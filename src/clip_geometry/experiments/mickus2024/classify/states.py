"""What is measured of a state: the clusters of the classifier's inputs, the isotropy of the embeddings, loss, …"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.experiments.mickus2024.classify.model import Classifier
from clip_geometry.experiments.mickus2024.classify.problem import Problem
from clip_geometry.geometry import Measure, measures
from clip_geometry.geometry._core.moments import Moments, scatter
from clip_geometry.geometry._core.rows import blocks, mean_row
from clip_geometry.references import references
from clip_geometry.registry import InputError, did_you_mean, shown

DEFAULT = (
    "silhouette", "silhouette[sqeuclidean]", "silhouette[cosine]", "isoscore", "isoscore[unbiased]",
    "participation_ratio", "average_cosine", "objective_silhouette", "objective_isotropy", "objective_classifier",
)  # fmt: skip


class Place(NamedTuple):
    """What a number is of. examples: "trained" or "held out". layer: "input" of the classifier, "hidden"; or "output"
    for loss and accuracy."""

    measure: str
    examples: str = "trained"
    layer: str = "input"


def known_measure(name: str) -> Measure:
    """A measure of rows, or of rows and labels. Raises InputError for any other name."""
    usable = {**measures, **references}
    usable = {key: each for key, each in usable.items() if each.takes in ("rows", "labelled rows")}
    if name not in usable:
        hint = did_you_mean(name, usable, listed_by=measures.listed_by)
        raise InputError(f"{shown(name)} is no measure of one set of rows{hint}")
    return usable[name]


@dataclass(frozen=True)
class Layer:
    """Rows of a layer. items: (m, d), what isotropy is taken of. paired: whether an example is rows of these side by
    side, and not one row.

    class_vectors: (k, w), those of a linear layer on the examples' rows, whose targets are class numbers; None where
    there is none.
    """

    items: Float[Tensor, "m d"]
    problem: Problem
    paired: bool = True
    class_vectors: Float[Tensor, "k w"] | None = None

    def inputs(self, chosen: Tensor | None) -> Float[Tensor, "n w"]:
        """A row for each example, or for each of some, before which no others are made."""
        if not self.paired:
            return self.items if chosen is None else self.items[chosen]
        return self.problem.inputs(self.items, chosen)


@dataclass(frozen=True)
class Observer:
    """Takes the named measures of a layer. sample: of more rows than that a random sample, another one in every state;
    it depends on seed and update only, so that a run that is continued draws the same. None: all rows.
    """

    names: Sequence[str]
    sample: int | None = None
    seed: int = 0

    def of(self, layer: Layer, update: int, *, strict: bool = False) -> dict[str, float]:
        """NaN where a measure is undefined in this state, unless `strict`, which lets its InputError through."""
        rng = np.random.default_rng([self.seed, update])
        items, targets, classes = layer.items, layer.problem.targets, layer.problem.classes
        if (chosen := self._sample(rng, len(items))) is not None:
            items = items[chosen.to(items.device)]
        if (chosen := self._sample(rng, len(targets))) is not None:
            classes, chosen = classes[chosen], chosen.to(targets.device)
            targets = targets[chosen]
        inputs = layer.inputs(chosen)
        found: dict[str, float] = {}
        moments: Moments | None = None
        for name in self.names:
            try:
                if known_measure(name).from_moments:
                    moments = moments or _moments(items, fourth="isoscore[unbiased]" in self.names)
                    found[name] = float(known_measure(name)(moments))
                elif name == "objective_classifier" and layer.class_vectors is not None:
                    found[name] = float(known_measure(name)(inputs, targets, layer.class_vectors))
                else:
                    rows = (items,) if known_measure(name).takes == "rows" else (inputs, classes)
                    found[name] = float(known_measure(name)(*rows))
            except InputError:
                if strict:
                    raise
                found[name] = float("nan")
        return found

    def _sample(self, rng: np.random.Generator, n: int) -> Tensor | None:
        """Row numbers, or None for all rows."""
        if self.sample is None or n <= self.sample:
            return None
        return torch.from_numpy(np.sort(rng.choice(n, self.sample, replace=False)))


def _moments(x: Float[Tensor, "n d"], *, fourth: bool) -> Moments:
    """M2 by float32 products, as `scatter` of wide rows has it, where `Moments.of` takes float64 ones throughout; the
    third and fourth moments, which only isoscore[unbiased] wants, or NaN."""
    m2 = scatter(x)
    mean = t = torch.full_like(m2[0], torch.nan)
    q = mean[0]
    if fourth:
        mean = mean_row(x)
        parts = [_third_and_fourth(block - mean) for block in blocks(x, 512)]
        t, q = (torch.stack(part).sum(0) for part in zip(*parts, strict=True))
    return Moments(len(x), mean, m2, t, q)


def _third_and_fourth(centred: Float[Tensor, "b d"]) -> tuple[Tensor, Tensor]:
    squares = centred.square().sum(1)
    return squares @ centred, squares.square().sum()


def layers(problem: Problem, items: Float[Tensor, "m d"], classifier: Classifier | None) -> dict[str, Layer]:
    """The inputs of the classifier, and the hidden layer if there is one, which has one row per example only."""
    if classifier is None:
        return {"input": Layer(items, problem)}
    last = classifier.first if classifier.second is None else classifier.second
    vectors = None if problem.multi_label else last.weight.detach()
    if last is classifier.first:
        return {"input": Layer(items, problem, class_vectors=vectors)}
    hidden = Layer(classifier.hidden(items, problem.examples), problem, paired=False, class_vectors=vectors)
    return {"input": Layer(items, problem), "hidden": hidden}
