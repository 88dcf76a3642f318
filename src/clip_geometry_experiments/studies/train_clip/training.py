"""The model, its objective and its trainer, and the measurement of its states on other images and captions."""

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.open_clip import CONFIG_FILE, HUB_WEIGHTS
from clip_geometry.encoders.runtime import inference
from clip_geometry.evaluate import ensemble, linear_probe, retrieval
from clip_geometry.files import write_atomically
from clip_geometry.geometry import Measure, measures
from clip_geometry.io.reading import first_line
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry.steps import parse_pipeline
from clip_geometry.training.losses import CosReg, IStar
from clip_geometry_experiments.kit.clip_training import ZERO_SHOT, Place, copy_tokenizer, save_half, zero_shot_by_class
from clip_geometry_experiments.kit.training import Trainer, correlation_rows
from clip_geometry_experiments.studies.train_clip.data import CaptionedImages, ClassPrompts, TrainClipConfig
from clip_geometry_experiments.studies.train_clip.figures import SEPARABILITY

SIGLIP_START = {"init_logit_scale": math.log(10), "init_logit_bias": -10.0}  # Zhai et al. 2023
LARGEST_SCALE = 100.0  # 1/temperature stays between 1 and this value, as in CLIP
ZETA, MOMENTUM = 0.2, 0.1  # shrinkage of IsoScore*, and the weight of a batch in C_0


def make_folder(folder: Path, config: TrainClipConfig, mean: list[float], std: list[float]) -> Path:
    """Write a folder that `local-dir:` reads, with config and tokenizer but without weights."""
    copy_tokenizer(folder)
    start = SIGLIP_START if config.arm == "siglip" else {"init_logit_scale": -math.log(config.temperature)}
    size = config.architecture.vision_cfg["image_size"]
    preprocess = {"size": size, "mode": "RGB", "mean": mean, "std": std}
    preprocess |= {"interpolation": "bicubic", "resize_mode": "shortest"}
    settings = {"model_cfg": {**config.architecture.model_dump(), **start}, "preprocess_cfg": preprocess}
    write_atomically(folder / CONFIG_FILE, (json.dumps(settings, indent=2) + "\n").encode())
    return folder


def fresh_encoder(folder: Path, seed: int) -> Encoder:
    """Return the encoder of a folder with initial weights, drawn on the CPU so that they do not depend on a GPU."""
    try:
        return load_encoder(f"local-dir:{folder}", "cpu", fresh=True, seed=seed)
    except InputError:
        raise
    except Exception as error:  # any error of open_clip, timm and torch for these settings
        raise InputError(f"open_clip cannot build this architecture: {first_line(error)}") from None


def save_weights(model: nn.Module, folder: Path) -> Path:
    """Save the model in float16 next to its config, so that `local-dir:FOLDER` loads the trained model."""
    return save_half(model, folder / HUB_WEIGHTS[0])


class ClipObjective(nn.Module):
    """The training objective: a loss of the unnormalized embeddings of both towers, with a penalty or on classes.

    Args:
        arm: The objective, as in `ObjectiveConfig.arm`.
        penalty: Weight of the penalty.
        width: Number of columns of the embeddings.
        classes: Number of classes.
        seed: Seed of the classification layer.
    """

    def __init__(self, arm: str, *, penalty: float = 1.0, width: int, classes: int, seed: int):
        super().__init__()
        from open_clip.loss import ClipLoss, SigLipLoss

        self.arm = arm
        self.contrast = SigLipLoss() if arm == "siglip" else ClipLoss()
        self.penalties = nn.ModuleDict()
        self.head = None
        for tower in ("image", "text"):
            if arm == "istar":
                self.penalties[tower] = IStar(penalty, zeta=ZETA, momentum=MOMENTUM)
            elif arm == "cosreg":
                self.penalties[tower] = CosReg(penalty)
        if arm == "classes":
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                self.head = nn.Linear(width, classes)

    def forward(
        self, image: Float[Tensor, "n d"], text: Float[Tensor, "n d"], labels: Int[Tensor, " n"], model: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of the pairs or classes, without and with the penalty."""
        loss = self.loss(image, text, labels, model)
        rows = {"image": image, "text": text}
        added = [penalty(functional.normalize(rows[tower], dim=-1)) for tower, penalty in self.penalties.items()]
        return loss, loss + sum(added)

    def loss(
        self, image: Float[Tensor, "n d"], text: Float[Tensor, "n d"], labels: Int[Tensor, " n"], model: Any
    ) -> Tensor:
        """Return the loss without the penalty; `model` provides temperature and bias."""
        if self.head is not None:
            scores = self.head(torch.cat([image, text]))
            return functional.cross_entropy(scores, torch.cat([labels, labels]))
        unit = (functional.normalize(rows, dim=-1) for rows in (image, text))
        bias = {} if model.logit_bias is None else {"logit_bias": model.logit_bias}
        return self.contrast(*unit, logit_scale=model.logit_scale.exp(), **bias)


class ClipTrainer(Trainer):
    """Trains both towers of a CLIP on image-caption pairs.

    Every batch is full, since a contrastive loss depends on the batch size: the remainder of an epoch is skipped.

    Args:
        encoder: The model with its initial weights.
        pairs: Training images and captions.
        prompts: Prompts for captions that name only the class.
        config: Config of the experiment.
        device: Device to train on.
    """

    Place = Place
    CAPTION, DROPOUT, NOISE = 1, 2, 3

    def __init__(
        self,
        encoder: Encoder,
        pairs: CaptionedImages,
        prompts: ClassPrompts,
        config: TrainClipConfig,
        *,
        device: torch.device,
    ):
        if len(pairs) < config.batch_size:
            raise InputError(
                f"batch_size is {config.batch_size}, but there are {len(pairs)} images to train on; lower batch_size, "
                "because all batches are full"
            )
        model: Any = encoder.model  # pyright: ignore[reportAttributeAccessIssue]
        size = {"width": config.architecture.embed_dim, "classes": len(pairs.class_names)}
        self.objective = ClipObjective(config.arm, penalty=config.penalty, **size, seed=config.seed)
        self.model, self.pairs, self.prompts = model, pairs, prompts
        modules = {"model": model.to(memory_format=torch.channels_last), "objective": self.objective}
        super().__init__(modules, config, device=device)
        noisy = round(config.caption_noise * len(pairs))
        swapped = self.stream(self.NOISE).permutation(len(pairs))[:noisy]
        self.captioned = np.arange(len(pairs))  # the image whose captions each image gets
        self.captioned[swapped] = np.roll(swapped, 1)  # a cycle: with at least two images, none keeps its own caption
        channels = (model.visual.preprocess_cfg[name] for name in ("mean", "std"))
        self.mean, self.std = (255 * torch.tensor(each).to(device).view(1, 3, 1, 1) for each in channels)
        model.logit_scale.requires_grad_(config.arm not in ("fixed_temperature", "classes"))
        parameters = [parameter for module in modules.values() for parameter in module.parameters()]
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        # matrices first, because the norm of the gradient is summed in this order
        trained.sort(key=lambda parameter: parameter.ndim <= 1)
        self.optimize(trained, weight_decay=config.weight_decay, betas=(0.9, config.beta2))

    def step(self) -> None:
        super().step()
        with torch.no_grad():
            self.model.logit_scale.clamp_(0, math.log(LARGEST_SCALE))

    def loss(self) -> tuple[Tensor, Tensor]:
        rows = self.batch(self.number)
        self.model.train()
        self.objective.train()
        pixels = self.pixels(self.pairs.images(rows))
        tokens = self.captions(rows, self.number).to(self.device)
        with self.autocast():
            image, text = self.model.encode_image(pixels), self.model.encode_text(tokens)
        labels = torch.from_numpy(self.pairs.labels[rows]).to(self.device)
        return self.objective(image.float(), text.float(), labels, self.model)

    def batch(self, number: int) -> np.ndarray:
        """Return the indices of the images of a step."""
        return self.shuffled(number, len(self.pairs), self.config.batch_size)

    def captions(self, rows: np.ndarray, number: int) -> Tensor:
        """Return tokens (b, t): a random caption per image or, with probability `class_captions`, a prompt of its
        class."""
        random = self.stream(self.CAPTION, number)
        rows = self.captioned[rows]
        tokens = self.pairs.captions(rows, random.integers(2**31, size=len(rows)))
        chosen = np.flatnonzero(random.random(len(rows)) < self.config.class_captions)
        if len(chosen):
            several = len(self.prompts.tokens) // len(self.pairs.class_names)
            places = several * self.pairs.labels[rows[chosen]] + random.integers(several, size=len(chosen))
            tokens[torch.from_numpy(chosen)] = torch.from_numpy(self.prompts.tokens[places])
        return tokens

    def pixels(self, images: Tensor) -> Tensor:
        return (images.to(self.device).float() - self.mean) / self.std


# --- the measurement of a state

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
