"""Measurement of a state (geometry of other images and captions, losses, zero-shot accuracy), and its records."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.runtime import inference
from clip_geometry.evaluate import ensemble, linear_probe, retrieval
from clip_geometry.geometry import Measure, measures
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry.steps import parse_pipeline
from clip_geometry_experiments.kit.clip_training import ZERO_SHOT, Place, zero_shot_by_class
from clip_geometry_experiments.kit.training import correlation_rows
from clip_geometry_experiments.studies.train_clip.data import CaptionedImages, ClassPrompts, TrainClipConfig
from clip_geometry_experiments.studies.train_clip.figures import SEPARABILITY
from clip_geometry_experiments.studies.train_clip.training import ClipTrainer

PIPELINE = ("normalize",)
CENTERED = (*PIPELINE, "center")
LOSS, TEMPERATURE, ACCURACY = "train_clip.loss", "train_clip.temperature", "train_clip.accuracy"
GAP_DIMENSIONS = "train_clip.gap_dimensions"
PROBE_C = 100.0  # unit rows need more than the default of 1
RANK = 10  # k of retrieval
NAMES = (
    "modality_gap", "relative_modality_gap", "modality_silhouette", "alignment", SEPARABILITY,
    "silhouette", "isoscore", "isoscore[unbiased]", "isotropy_i1", "isotropy_i2", "average_cosine",
    "cone_mean_cosine", "cone_half_angle", "uniformity",
)  # fmt: skip
BATCH = 256
COMPARED = (("silhouette", "isoscore"), ("modality_gap", "isoscore"), ("modality_gap", "silhouette"))
CHANGES = ("modality_gap", "isoscore", "isoscore[unbiased]", "silhouette", "average_cosine")
MODALITIES = ("image", "text")

Curves = Mapping[Any, np.ndarray]  # Place → values (states,), NaN where undefined


@torch.no_grad()
def encode(
    trainer: ClipTrainer, pairs: CaptionedImages, prompts: ClassPrompts, *, batch_norm: str = "eval"
) -> tuple[Tensor, Tensor, Tensor]:
    """Return float32 rows on the CPU: of the images, of the first caption of each image, and one per class.

    They are computed in eval mode and float32, regardless of the training precision.

    Args:
        trainer: The training whose model embeds the pairs.
        pairs: Images and captions.
        prompts: Prompts of the classes.
        batch_norm: "eval" uses the running statistics of batch norm, "batch" the statistics of these images.

    Returns:
        Image rows (n, d), caption rows (n, d), and unit class rows (k, d).
    """
    model = trainer.model.eval()
    device = trainer.device
    rows = np.arange(len(pairs))
    size = len(pairs) if batch_norm == "batch" else BATCH
    with inference(), batch_statistics(model) if batch_norm == "batch" else nullcontext():
        chunks = (rows[k : k + size] for k in range(0, len(rows), size))
        image = [model.encode_image(trainer.pixels(pairs.images(chunk))) for chunk in chunks]
        captions = pairs.captions(rows, np.zeros_like(rows))
        text = [model.encode_text(part.to(device)) for part in captions.split(BATCH)]
        classes = [model.encode_text(part.to(device)) for part in torch.from_numpy(prompts.tokens).split(BATCH)]
    image, text, classes = (torch.cat(parts).float().cpu() for parts in (image, text, classes))
    trainer.require_finite(torch.cat([image, text, classes]), f"an embedding after {trainer.number} steps")
    return image, text, ensemble(classes, prompts.classes).float()


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Use the statistics of the batch in batch norm, without keeping them."""
    layers = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for layer in layers:
        layer.train()
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.eval()
            layer.track_running_stats = True


class ClipCallback:
    """Measures a state on fixed pairs.

    Args:
        pairs: Images and captions that are not in the training set.
        prompts: Prompts of zero-shot classification, whose candidates are all classes.
        names: Names of the measures.
        batch_norm: "eval" or "batch".
    """

    def __init__(
        self, pairs: CaptionedImages, prompts: ClassPrompts, names: Sequence[str] = NAMES, *, batch_norm: str = "eval"
    ):
        self.pairs, self.prompts, self.batch_norm = pairs, prompts, batch_norm
        self.names = {name: None if name == GAP_DIMENSIONS else known(name) for name in names}

    def __call__(self, trainer: ClipTrainer) -> dict[Place, float]:
        image, text, classes = encode(trainer, self.pairs, self.prompts, batch_norm=self.batch_norm)
        return {
            **zero_shot_values(image, classes, self.pairs.labels, self.prompts.seen),
            **self._geometry(image, text),
            **self._objective(trainer, image, text),
        }

    def _geometry(self, image: Tensor, text: Tensor) -> dict[Place, float]:
        """Measure paired unit rows, labeled with the classes of the images; an undefined measure is NaN."""
        items: dict[str, Any] = {"item_id": self.pairs.item_id, "labels": self.pairs.labels}
        rows = {"image": image.numpy(), "text": text.numpy()}
        sets = {name: Embeddings(vectors=vectors, modality=name, **items) for name, vectors in rows.items()}
        measured = MeasuredSets(sets, parse_pipeline(PIPELINE), blocks=0)
        values = {}
        for name, measure in self.names.items():
            if measure is None:
                values[Place(name)] = gap_dimensions(image, text)
                continue
            for modality in ("both",) if measure.inputs.across else MODALITIES:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # a classifier that has not converged still yields a number
                        values[Place(name, modality)] = measured.value(measure, modality)
                except InputError:
                    values[Place(name, modality)] = float("nan")
        return values

    @torch.no_grad()
    def _objective(self, trainer: ClipTrainer, image: Tensor, text: Tensor) -> dict[Place, float]:
        """Measure the loss without penalties on these pairs, in batches of the training size, and the temperature or
        the accuracy of the classifier."""
        objective = trainer.objective.eval()
        device = trainer.device
        size = min(trainer.config.batch_size, len(image))
        labels = torch.from_numpy(self.pairs.labels)
        losses = []
        for k in range(0, len(image) - size + 1, size):
            x, y, codes = (each[k : k + size].to(device) for each in (image, text, labels))
            losses.append(float(objective.loss(x, y, codes, trainer.model)))
        values = {Place(LOSS): float(np.mean(losses))}
        if objective.head is None:
            values[Place(TEMPERATURE)] = float(1 / trainer.model.logit_scale.exp())
            return values
        for modality, rows in (("image", image), ("text", text)):
            correct = objective.head(rows.to(device)).argmax(1).cpu() == labels
            values[Place(ACCURACY, modality)] = float(correct.double().mean())
        return values


def gap_dimensions(image: Tensor, text: Tensor) -> float:
    """Return the number of coordinates that carry the gap, relative to a random direction.

    For the gap δ between the means of unit rows, it is (Σδ²)²/Σδ⁴ · 3/(d + 2): about 1 for a random direction, and
    least for a single coordinate, 3/(d + 2).
    """
    means = (functional.normalize(rows.double(), dim=-1).mean(0) for rows in (image, text))
    squares = torch.sub(*means).square()
    return float(squares.sum() ** 2 / squares.square().sum() * 3 / (len(squares) + 2))


def known(name: str) -> Measure:
    """Return the measure or the evaluator's number; separability skips most of the draws behind its null value."""
    measure = measures[name]
    return replace(measure, options={**measure.options, "draws": 1}) if name == SEPARABILITY else measure


def zero_shot_values(image: Tensor, classes: Tensor, labels: np.ndarray, seen: np.ndarray) -> dict[Place, float]:
    """Return the accuracy on images of classes seen in training and, if there are any, of held-out classes."""
    accuracies = zero_shot_by_class(image, classes, labels, seen)
    return {Place(ZERO_SHOT, "both", name): value for name, value in accuracies.items()}


def task_values(
    fit: tuple[Tensor, Tensor, np.ndarray], test: tuple[Tensor, Tensor, np.ndarray], classes: Tensor, seen: np.ndarray
) -> Iterator[tuple[tuple[str, ...], Place, float]]:
    """Yield (pipeline, place, value) of each task on `test`, with the original rows and centered by the means of `fit`.

    Args:
        fit: Images, captions and labels that the means and the probe are fitted on.
        test: Other images, captions and labels.
        classes: One row per class.
        seen: Classes seen in training.
    """
    image_fit, text_fit, image, text, classes = (
        functional.normalize(rows, dim=-1) for rows in (*fit[:2], *test[:2], classes)
    )
    fitted, labels = fit[2], test[2]
    known = np.isin(labels, fitted)
    probe = linear_probe(image_fit.numpy(), fitted, image.numpy()[known], labels[known], C=PROBE_C, solver="torch")
    yield PIPELINE, Place("linear_probe.top_1", "image"), float(probe["top_1"])
    for pipeline in (PIPELINE, CENTERED):
        if pipeline == CENTERED:
            image, text, classes = image - image_fit.mean(0), text - text_fit.mean(0), classes - text_fit.mean(0)
            for place, value in zero_shot_values(image, classes, labels, seen).items():
                yield pipeline, place, value
        scores_by_index = {
            "retrieval": retrieval(image.numpy(), text.numpy(), k=RANK),
            "retrieval[mixed]": retrieval(image.numpy(), text.numpy(), k=RANK, index="mixed"),
        }
        for name, scores in scores_by_index.items():
            for direction in ("image_to_text", "text_to_image"):
                yield pipeline, Place(f"{name}.{direction}.r_at_{RANK}"), float(scores[f"{direction}.r_at_{RANK}"])


# --- records


def fields_of(config: TrainClipConfig, place: Place, pairs: CaptionedImages, seen: np.ndarray) -> Row:
    """Return size, null value and `at` of a number of these pairs."""
    n: int = len(pairs)
    width = config.architecture.embed_dim
    null = {}
    if place.measure == ZERO_SHOT:
        n = int((np.isin(pairs.labels, seen) == (place.classes == "seen")).sum())
        null = {"null_value": 1 / len(pairs.class_names)}
    elif place.measure.startswith("train_clip."):
        width = None
    elif not place.measure.startswith(("retrieval", "linear_probe")) and known(place.measure).takes == "two sets":
        n *= 2
    classes = {} if place.classes == "all" else {"classes": place.classes}
    return {"n": n, "d": width, **null, "at": {**config.at(), "step": config.steps, "modality": place.of, **classes}}


def change_rows(config: TrainClipConfig, curves: Curves) -> Iterator[Row]:
    """Yield differences between the last and the first state, and correlations over the states.

    After the first states, which are at powers of two, the states are evenly spaced. All states have equal weight.
    """
    for name in CHANGES:
        for place in (Place(*key) for key in curves if key[0] == name):
            values = curves[place]
            if np.isfinite(values[[0, -1]]).all():
                at = {**config.at(), "of": name, "modality": place.of}
                yield Record("train_clip.change", float(values[-1] - values[0]), n=len(values), d=None, at=at)
    for (first, second), modality in product(COMPARED, MODALITIES):
        x, y = (curves.get(Place(name, modality), curves.get(Place(name))) for name in (first, second))
        if x is not None and y is not None:
            at = {**config.at(), "of": first, "with": second, "modality": modality}
            yield from correlation_rows("train_clip", x, y, d=None, at=at)
