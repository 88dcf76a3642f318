"""What is measured of a state: the geometry of other images and captions, losses, and zero-shot accuracy."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.runtime import inference
from clip_geometry.evaluators import ensemble, evaluators
from clip_geometry.experiments.kit.clip_training import ZERO_SHOT, zero_shot_by_class
from clip_geometry.experiments.train_clip.data import Pairs, Prompts
from clip_geometry.experiments.train_clip.training import ClipTrainer, Place
from clip_geometry.geometry import Measure, measures
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.transforms import parse_pipeline

PIPELINE = ("normalize",)
SEPARABILITY = "modality_separability.logistic_regression.cross_validated"
LOSS, TEMPERATURE, ACCURACY = "train_clip.loss", "train_clip.temperature", "train_clip.accuracy"
NAMES = (
    "modality_gap", "relative_modality_gap", "modality_silhouette", "alignment", SEPARABILITY,
    "silhouette", "isoscore", "isoscore[unbiased]", "isotropy_i1", "isotropy_i2", "average_cosine",
    "cone_mean_cosine", "cone_half_angle", "uniformity",
)  # fmt: skip
BATCH = 256


@torch.no_grad()
def encode(
    trainer: ClipTrainer, pairs: Pairs, prompts: Prompts, *, batch_norm: str = "eval"
) -> tuple[Tensor, Tensor, Tensor]:
    """float32 rows on the CPU: of the images, of the first caption of each, and one for each class. In eval mode and
    float32 whatever the precision of the training; batch_norm: "batch" uses the statistics of these images."""
    model, device = trainer.model.eval(), trainer.device
    rows = np.arange(len(pairs))
    size = len(pairs) if batch_norm == "batch" else BATCH
    with inference(), batch_statistics(model) if batch_norm == "batch" else nullcontext():
        chunks = (rows[k : k + size] for k in range(0, len(rows), size))
        image = [model.encode_image(trainer.pixels(pairs.images(chunk))) for chunk in chunks]
        captions = pairs.captions(rows, np.zeros_like(rows))
        text = [model.encode_text(part.to(device)) for part in captions.split(BATCH)]
        classes = [model.encode_text(part.to(device)) for part in torch.from_numpy(prompts.tokens).split(BATCH)]
    image, text, classes = (torch.cat(each).float().cpu() for each in (image, text, classes))
    trainer.require_finite(torch.cat([image, text, classes]), f"an embedding after {trainer.number} steps")
    return image, text, ensemble(classes, prompts.classes).float()


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Batch norm with the statistics of the batch, which are not kept."""
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


class StateCallback:
    """Measures a state on fixed pairs.

    Args:
        pairs: other images and captions than those of the training.
        prompts: of zero-shot, whose candidates are all classes.
        names: the measures.
        batch_norm: eval or batch.
    """

    def __init__(self, pairs: Pairs, prompts: Prompts, names: Sequence[str] = NAMES, *, batch_norm: str = "eval"):
        self.pairs, self.prompts, self.names, self.batch_norm = pairs, prompts, names, batch_norm

    def __call__(self, trainer: ClipTrainer) -> dict[Place, float]:
        image, text, classes = encode(trainer, self.pairs, self.prompts, batch_norm=self.batch_norm)
        return {
            **zero_shot_values(image, classes, self.pairs.labels, self.prompts.seen),
            **self._geometry(image, text),
            **self._objective(trainer, image, text),
        }

    def _geometry(self, image: Tensor, text: Tensor) -> dict[Place, float]:
        """Measures of unit rows, paired, labelled with the classes of the images; NaN if a measure is undefined."""
        sets = {
            modality: Embeddings(
                vectors=rows.numpy(), modality=modality, item_id=self.pairs.item_id, labels=self.pairs.labels
            )
            for modality, rows in (("image", image), ("text", text))
        }
        measured = MeasuredSets(sets, parse_pipeline(PIPELINE), blocks=0)
        found = {}
        for name in self.names:
            measure = known(name)
            for modality in ("both",) if measure.across else ("image", "text"):
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # a classifier that has not converged is a number all the same
                        found[Place(name, modality)] = measured.value(measure, modality)
                except InputError:
                    found[Place(name, modality)] = float("nan")
        return found

    @torch.no_grad()
    def _objective(self, trainer: ClipTrainer, image: Tensor, text: Tensor) -> dict[Place, float]:
        """The loss on these pairs in batches of the training's size, without penalties, and the temperature, or the
        accuracy of the classifier."""
        objective, device = trainer.objective.eval(), trainer.device
        size, labels = min(trainer.config.batch_size, len(image)), torch.from_numpy(self.pairs.labels)
        losses = []
        for k in range(0, len(image) - size + 1, size):
            x, y, codes = (each[k : k + size].to(device) for each in (image, text, labels))
            losses.append(float(objective.loss(x, y, codes, trainer.model)))
        found = {Place(LOSS): float(np.mean(losses))}
        if objective.head is None:
            found[Place(TEMPERATURE)] = float(1 / trainer.model.logit_scale.exp())
            return found
        for modality, rows in (("image", image), ("text", text)):
            right = objective.head(rows.to(device)).argmax(1).cpu() == labels
            found[Place(ACCURACY, modality)] = float(right.double().mean())
        return found


def known(name: str) -> Measure:
    """The measure or the evaluator's number; separability without most of the draws behind its null value."""
    found = {**measures, **evaluators}[name]
    return replace(found, options={**found.options, "draws": 1}) if name == SEPARABILITY else found


def zero_shot_values(image: Tensor, classes: Tensor, labels: np.ndarray, seen: np.ndarray) -> dict[Place, float]:
    """Accuracy on the images of classes seen in training, and of held-out ones, if any."""
    found = zero_shot_by_class(image, classes, labels, seen)
    return {Place(ZERO_SHOT, "both", name): value for name, value in found.items()}
