"""What is measured of a state of the training: the geometry of other pictures and captions, and zero-shot accuracy."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.runtime import inference
from clip_geometry.evaluators import ensemble, evaluators, zero_shot
from clip_geometry.experiments.train_clip.data import Pairs, Prompts
from clip_geometry.experiments.train_clip.training import Place, Training
from clip_geometry.geometry import Measure, measures
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.transforms import parse_pipeline

PIPELINE = ("normalize",)
SEPARABILITY = "modality_separability.logistic_regression.cross_validated"
ZERO_SHOT, LOSS, TEMPERATURE, ACCURACY = (
    "zero_shot.top_1", "train_clip.loss", "train_clip.temperature", "train_clip.accuracy",
)  # fmt: skip
NAMES = (
    "modality_gap", "relative_modality_gap", "modality_silhouette", "alignment", SEPARABILITY,
    "silhouette", "isoscore", "isoscore[unbiased]", "isotropy_i1", "isotropy_i2", "average_cosine",
    "cone_mean_cosine", "cone_half_angle", "uniformity",
)  # fmt: skip
BATCH = 256


@torch.no_grad()
def encode(
    training: Training, pairs: Pairs, prompts: Prompts, *, batch_norm: str = "eval"
) -> tuple[Tensor, Tensor, Tensor]:
    """float32 rows on the CPU: of the pictures, of the first caption of each, and one of each class. In eval mode and
    float32 whatever the precision of the training is; batch_norm: "batch" uses the statistics of these pictures."""
    model, device = training.model.eval(), training.device
    rows = np.arange(len(pairs))
    size = len(pairs) if batch_norm == "batch" else BATCH
    with inference(), batch_statistics(model) if batch_norm == "batch" else nullcontext():
        image = [model.encode_image(training.pixels(pairs.pictures(part))) for part in chunks(rows, size)]
        captions = pairs.captions(rows, np.zeros_like(rows))
        text = [model.encode_text(part.to(device)) for part in captions.split(BATCH)]
        classes = [model.encode_text(part.to(device)) for part in torch.from_numpy(prompts.tokens).split(BATCH)]
    image, text, classes = (torch.cat(each).float().cpu() for each in (image, text, classes))
    training.require_finite(torch.cat([image, text, classes]), f"an embedding after {training.number} steps")
    return image, text, ensemble(classes, prompts.classes).float()


def chunks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (rows[k : k + size] for k in range(0, len(rows), size))


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Batch norm by the batch at hand, whose statistics are not kept."""
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


class Observer:
    """Numbers of a state on fixed pairs. prompts: of zero-shot, whose candidates are all classes."""

    def __init__(self, pairs: Pairs, prompts: Prompts, names: Sequence[str] = NAMES, *, batch_norm: str = "eval"):
        self.pairs, self.prompts, self.names, self.batch_norm = pairs, prompts, names, batch_norm

    def __call__(self, training: Training) -> dict[Place, float]:
        image, text, classes = encode(training, self.pairs, self.prompts, batch_norm=self.batch_norm)
        return {
            **zero_shot_values(image, classes, self.pairs.labels, self.prompts.seen),
            **self._geometry(image, text),
            **self._learnt(training, image, text),
        }

    def _geometry(self, image: Tensor, text: Tensor) -> dict[Place, float]:
        """NaN where a measure is not defined in this state."""
        sets = measured_sets(image, text, self.pairs)
        found = {}
        for name in self.names:
            measure = known(name)
            for modality in ("both",) if measure.across else ("image", "text"):
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # a classifier that has not converged is a number all the same
                        found[Place(name, modality)] = sets.value(measure, modality)
                except InputError:
                    found[Place(name, modality)] = float("nan")
        return found

    @torch.no_grad()
    def _learnt(self, training: Training, image: Tensor, text: Tensor) -> dict[Place, float]:
        """The loss on these pairs in batches of the training's size, without what a penalty adds; temperature; of an
        arm with a classifier its accuracy."""
        objective, device = training.objective.eval(), training.device
        size, labels = min(training.config.batch_size, len(image)), torch.from_numpy(self.pairs.labels)
        parts = [slice(k, k + size) for k in range(0, len(image) - size + 1, size)]
        of = [[each[part].to(device) for each in (image, text, labels)] for part in parts]
        losses = [float(objective.loss(x, y, codes, training.model)) for x, y, codes in of]
        found = {Place(LOSS): float(np.mean(losses))}
        if objective.head is None:
            found[Place(TEMPERATURE)] = float(1 / training.model.logit_scale.exp())
            return found
        for modality, rows in (("image", image), ("text", text)):
            right = objective.head(rows.to(device)).argmax(1).cpu() == labels
            found[Place(ACCURACY, modality)] = float(right.double().mean())
        return found


class Watch:
    """An observer that knows what share of the time it takes."""

    def __init__(self, observer: Observer):
        self.observer, self.seconds, self.begin = observer, 0.0, time.monotonic()

    def __call__(self, training: Training) -> Mapping[Place, float]:
        begin = time.monotonic()
        found = self.observer(training)
        self.seconds += time.monotonic() - begin
        return found

    @property
    def share(self) -> float:
        return self.seconds / max(time.monotonic() - self.begin, 1e-9)


def known(name: str) -> Measure:
    """The measure or the evaluator's number; of separability without most of the draws behind its null."""
    found = {**measures, **evaluators}[name]
    return replace(found, options={**found.options, "draws": 1}) if name == SEPARABILITY else found


def measured_sets(image: Tensor, text: Tensor, pairs: Pairs) -> MeasuredSets:
    """Unit rows, paired one to one, labelled with the classes of the pictures."""
    rows = {"image": image, "text": text}
    sets = {
        modality: Embeddings(vectors=each.numpy(), modality=modality, item_id=pairs.item_id, labels=pairs.labels)
        for modality, each in rows.items()
    }
    return MeasuredSets(sets, parse_pipeline(PIPELINE), blocks=0)


def zero_shot_values(image: Tensor, classes: Tensor, labels: np.ndarray, seen: np.ndarray) -> dict[Place, float]:
    """Accuracy on the pictures of classes that were seen in training, and on those that were not, if there are any."""
    known_class = np.isin(labels, seen)
    found = {}
    for name, chosen in (("seen", known_class), ("held out", ~known_class)):
        if chosen.any():
            of = zero_shot(image[torch.from_numpy(chosen)], labels[chosen], classes)
            found[Place(ZERO_SHOT, "both", name)] = of["top_1"]
    return found
