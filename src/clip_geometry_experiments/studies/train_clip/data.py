"""The config of the training of a CLIP, and its data: images as bytes, captions as tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from pydantic import BeforeValidator, Field, field_validator, model_validator
from torch import Tensor

from clip_geometry.config import Config, digest, read_yaml
from clip_geometry.data import load_dataset
from clip_geometry.data.base import Dataset, DatasetConfig, Side
from clip_geometry.data.images import rgb
from clip_geometry.encoders.base import Tokens
from clip_geometry.progress import note, progress
from clip_geometry.registry import InputError, did_you_mean
from clip_geometry_experiments.kit.base import Data, RunConfig
from clip_geometry_experiments.kit.clip_training import LR, OptimizerConfig, with_a_place

PENALTIES = {"istar": "I-STAR", "cosreg": "CosReg"}  # display names of the penalties
SIGLIP_LR = 2e-3  # 1000 steps of siglip on scenes with 8e-3 end at an accuracy of 0.12, with 2e-3 at 0.95
ARCHITECTURES = read_yaml(Path(__file__).with_name("architectures.yaml"))


class ArchitectureConfig(Config):
    """An architecture in the form of open_clip's `model_cfg`.

    Args:
        embed_dim: Number of columns of the embeddings.
        vision_cfg: Config of the image tower.
        text_cfg: Settings of the text tower that differ from architectures.yaml; its tokenizer is that of scenes-clip.
    """

    embed_dim: int = 256
    vision_cfg: dict[str, Any]
    text_cfg: dict[str, Any] = Field(default_factory=dict, validate_default=True)

    @field_validator("text_cfg")
    @classmethod
    def _complete(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Add the default settings of the text tower, and check its tokenizer."""
        defaults = ARCHITECTURES["text"]
        text = {**defaults, **given}
        if text["hf_tokenizer_name"] != defaults["hf_tokenizer_name"] or text["vocab_size"] < defaults["vocab_size"]:
            expected = f"{defaults['hf_tokenizer_name']} and at least its {defaults['vocab_size']} tokens"
            raise InputError(
                f"tokenizer is {text['hf_tokenizer_name']} with vocab_size {text['vocab_size']}; expected {expected}"
            )
        return text

    def __str__(self) -> str:
        """Return a description such as `test_byobnet; text: 1 layer of width 128; 256 columns`."""
        text = self.text_cfg
        layers = self.vision_cfg.get("layers")
        kind = "ResNet" if isinstance(layers, list) else "ViT"
        tower = self.vision_cfg.get("timm_model_name") or f"{kind}, layers {layers}"
        depth = "1 layer" if text["layers"] == 1 else f"{text['layers']} layers"
        return f"{tower}; text: {depth} of width {text['width']}; {self.embed_dim} columns"


def _named(given: Any) -> Any:
    """Return the architecture with a name, or the given section."""
    named = ARCHITECTURES["named"]
    if isinstance(given, str) and given not in named:
        hint = did_you_mean(given, named) or f"; known are {', '.join(named)}"
        raise InputError(f"unknown architecture {given!r}{hint}, or a section with open_clip's model_cfg")
    return named[given] if isinstance(given, str) else given


class ObjectiveConfig(Config):
    """Config of the objective that is minimized.

    Args:
        arm: The objective. clip: open_clip's ClipLoss. siglip: open_clip's SigLipLoss. fixed_temperature: ClipLoss with
            a temperature that is not trained. istar, cosreg: ClipLoss plus `penalty` times 1 − IsoScore* (C_0 averaged
            over batches) or times the average cosine of the unit rows of each tower. classes: cross-entropy of one
            linear layer on the embeddings of images and of captions, whose target is the class of the image.
        temperature: Initial temperature of ClipLoss, within the bounds of training, from 0.01 to 1. SigLipLoss starts
            at its paper's temperature of 0.1 and bias of −10.
        penalty: Weight of the penalty.
    """

    arm: Literal["clip", "siglip", "fixed_temperature", "istar", "cosreg", "classes"] = "clip"
    temperature: float = Field(default=0.07, ge=0.01, le=1)
    penalty: float = 1.0


class TrainClipConfig(RunConfig, OptimizerConfig, ObjectiveConfig):
    """Config of the experiment `train_clip`.

    Args:
        architecture: A name (byobnet, tiny), or open_clip's own model_cfg.
        data: Images with captions (or, with a prompt, class captions) and labels.
        measured: Other images, of all classes, on which the geometry of the states is measured.
        tested: Images for zero-shot accuracy at the end; null for none.
        lr: Learning rate; the default is 8e-3, or 2e-3 for siglip.
        prompts: Templates of zero-shot prompts, an ensemble if there are several; the candidates are all classes.
        training_prompts: Templates of the training captions that name only the class; null uses `prompts`. The model
            understands a wording that is not among them less well.
        measured_pictures: Use only the first N images of `measured`; null uses all.
        caption_noise: Share of the training images that get the caption of another image, the same one in every epoch.
        measures: Measures of the states; null uses the measures of the figures.
        tasks: Whether to also score retrieval, a linear probe and zero-shot accuracy on `tested` at the end, both with
            the original rows and with rows centered by the means of `measured`. The probe is fitted on the labels of
            `measured`.
        measurements: Approximate number of states to measure: the first ones at powers of two, the rest evenly spaced.
        recorded: Records of a training with these settings to show instead of training: a results.jsonl, or
            `shipped/NAME/training.jsonl` of a shipped model; null trains.
        batch_norm: Statistics of batch norm in measured states. eval: the running statistics, which are the identity at
            first and lag for some steps. batch: the statistics of the measured images. The saved model is always tested
            with its running statistics.
        seed: Seed of the initial weights, the batches and the captions.
    """

    architecture: Annotated[ArchitectureConfig, BeforeValidator(_named)]
    data: Data
    measured: Data
    tested: Data | None = None
    lr: float = Field(default_factory=lambda values: SIGLIP_LR if values["arm"] == "siglip" else LR, gt=0)
    prompts: tuple[str, ...] = Field(default=("a picture of a {}.",), min_length=1)
    training_prompts: tuple[str, ...] | None = Field(default=None, min_length=1)
    caption_noise: float = Field(default=0.0, ge=0, le=1)
    measures: tuple[str, ...] | None = Field(default=None, min_length=1)
    tasks: bool = False
    measured_pictures: int | None = Field(default=512, ge=2)
    measurements: int = Field(default=40, ge=2)
    recorded: str | None = Field(default=None, min_length=1)
    batch_norm: Literal["eval", "batch"] = "eval"

    @field_validator("prompts", "training_prompts")
    @classmethod
    def _with_a_place(cls, prompts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return prompts if prompts is None else with_a_place(prompts)

    @model_validator(mode="after")
    def _of_use(self) -> Self:
        """Check that every option has an effect on the chosen objective."""
        for name, arms in (("penalty", (*PENALTIES,)), ("temperature", ("clip", "fixed_temperature", *PENALTIES))):
            if self.arm not in arms and getattr(self, name) != type(self).model_fields[name].default:
                raise InputError(f"{name} has no effect on the arm {self.arm}; leave it out")
        if self.tasks and self.tested is None:
            raise InputError("tasks are scored on `tested`, which is missing; set tested, or tasks to false")
        return self

    def at(self) -> dict[str, Any]:
        """Return the arm, its penalty weight and other settings that are not defaults, for the `at` of records."""
        penalty = {"penalty": self.penalty, "tower": "both"} if self.arm in PENALTIES else {}
        named = ("temperature", "caption_noise", *(["class_captions"] if self.tasks else []))
        values: Mapping[str, Any] = {name: getattr(self, name) for name in named}
        fields = type(self).model_fields
        return {"arm": self.arm, **penalty} | {
            name: value for name, value in values.items() if value != fields[name].default
        }

    def label(self) -> str:
        """Return the label of the arm, such as `ClipLoss` or `ClipLoss + I-STAR, λ = 1, both towers`."""
        if self.arm in PENALTIES:
            weight = f"{self.penalty:g}".replace("-", "−")
            return f"ClipLoss + {PENALTIES[self.arm]}, λ = {weight}, both towers"
        named = {"clip": "ClipLoss", "siglip": "SigLIP loss", "classes": "class labels"}
        return named.get(self.arm, f"temperature fixed at {self.temperature:g}")


# --- the data

SAMPLE = 2000  # number of images for mean and standard deviation of the channels
CHUNK = 1000  # number of captions that are tokenized at a time


@dataclass(frozen=True, eq=False)
class CaptionedImages:
    """Images and their captions.

    Args:
        pixels: Images, (n, s, s, 3), uint8.
        labels: Labels of the images, (n,).
        tokens: Tokens of the captions, (m, t); the captions of image k are rows first[k] to first[k] + count[k].
        first: Row of the first caption of each image, (n,).
        count: Number of captions of each image, (n,).
        item_id: Ids of the images, (n,).
        class_names: Names of the classes, by label.
    """

    pixels: np.ndarray
    labels: np.ndarray
    tokens: np.ndarray
    first: np.ndarray
    count: np.ndarray
    item_id: np.ndarray
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.pixels)

    def head(self, size: int | None) -> "CaptionedImages":
        """Return the first images with their captions; None returns all."""
        parts = {name: getattr(self, name)[:size] for name in ("pixels", "labels", "first", "count", "item_id")}
        return replace(self, **parts)

    def images(self, rows: np.ndarray) -> Tensor:
        """Return images as uint8, (b, 3, s, s), channels last in memory, which makes convolutions on a CPU faster."""
        return torch.from_numpy(np.ascontiguousarray(self.pixels[rows])).permute(0, 3, 1, 2)

    def captions(self, rows: np.ndarray, number: np.ndarray) -> Tensor:
        """Return one caption per image, (b, t), int64: the one with this number, modulo the number of its captions."""
        return torch.from_numpy(self.tokens[self.first[rows] + number % self.count[rows]].astype(np.int64))


def load_pairs(
    dataset: Dataset,
    transform: Callable[[Any], Any],
    tokenize: Callable[[Sequence[str]], Tokens],
    key: Mapping[str, Any],
) -> CaptionedImages:
    """Load a data set with `transform` and `tokenize` applied, once for all trainings of a process.

    Args:
        dataset: The data set.
        transform: Function from an image to its pixels (s, s, 3), uint8.
        tokenize: Function from captions to their tokens.
        key: Everything that both functions depend on.

    Raises:
        InputError: If the data set lacks images, captions, labels or class names.
    """
    place = digest({"data": dataset.config.model_dump(mode="json"), "revision": dataset.revision, **key})
    if place in _PREPARED:
        return _PREPARED[place]
    image, text = _sides(dataset)
    order, first, count = caption_groups(image, text)
    tokens, truncated = _tokens(text, tokenize)
    if truncated:
        note(f"{truncated} of {len(text)} captions of {dataset.config.name} are cut to what the text tower reads")
    pixels = np.empty((len(image), *_bytes(image, 0, transform).shape), dtype=np.uint8)
    with progress("preparing images", total=len(image)) as advance:
        for k in range(len(image)):
            pixels[k] = _bytes(image, k, transform)
            advance(1)
    _PREPARED[place] = CaptionedImages(
        pixels=pixels,
        labels=np.asarray(image.labels),
        tokens=tokens[order],
        first=first,
        count=count,
        item_id=np.asarray(image.item_id),
        class_names=dataset.class_names or (),
    )
    return _PREPARED[place]


_PREPARED: dict[str, CaptionedImages] = {}


def _sides(dataset: Dataset) -> tuple[Side, Side]:
    """Return the images and captions of a data set; raise InputError if it lacks captions, labels or class names."""
    name, image, text = dataset.config.name, dataset.image, dataset.text
    if image is None or text is None:
        missing = "images" if image is None else "captions"
        hint = "" if image is None or dataset.class_names is None else "; set its prompt for captions of its classes"
        raise InputError(f"a CLIP is trained on images with captions, but {name} has no {missing}{hint}")
    if image.labels is None or dataset.class_names is None:
        raise InputError(f"{name} has no labels with class names, which zero-shot accuracy and silhouettes need")
    return image, text


def caption_groups(image: Side, text: Side) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (order, first, count): the captions of image k are order[first[k] : first[k] + count[k]]."""
    sides = (text, image)
    text_keys, image_keys = (np.asarray(side.labels if text.pair_on == "label" else side.item_id) for side in sides)
    keys, group, count = np.unique(text_keys, return_inverse=True, return_counts=True)
    place = np.minimum(np.searchsorted(keys, image_keys), len(keys) - 1)
    alone = image_keys[keys[place] != image_keys]
    if len(alone):
        raise InputError(f"{len(alone)} images have no caption, such as {alone[0]}; leave them out")
    return np.argsort(group, kind="stable"), (np.cumsum(count) - count)[place], count[place]


def require_apart(datasets: Mapping[str, Dataset]) -> None:
    """Raise InputError if `measured` or `tested` has other classes than `data`, or shares an item_id with it."""
    trained = datasets["data"]
    for name, other in datasets.items():
        if name == "data" or other.image is None or trained.image is None:
            continue
        if other.class_names != trained.class_names:
            raise InputError(
                f"{name} ({other.config.name}) has other classes than data ({trained.config.name}); expected the same "
                "classes in the same order"
            )
        keys = ("name", "split", "path")
        same_source = all(getattr(trained.config, key, None) == getattr(other.config, key, None) for key in keys)
        shared = set(other.image.item_id) & set(trained.image.item_id)
        if same_source and shared:
            raise InputError(
                f"{len(shared)} images of {name}, such as {min(shared)}, are trained on; expected other images, for "
                "example another split"
            )


def _tokens(text: Side, tokenize: Callable[[Sequence[str]], Tokens]) -> tuple[np.ndarray, int]:
    """Return the token ids of all captions and the number of truncated captions."""
    parts = []
    truncated = 0
    with progress("preparing captions", total=len(text)) as advance:
        for start in range(0, len(text), CHUNK):
            texts = [str(text.load(k)) for k in range(start, min(start + CHUNK, len(text)))]
            tokens = tokenize(texts)
            parts.append(tokens.inputs.numpy().astype(np.int32))
            truncated += tokens.truncated
            advance(len(texts))
    return np.concatenate(parts), truncated


def _bytes(image: Side, k: int, transform: Callable[[Any], Any]) -> np.ndarray:
    """Return the pixels of image k after the transform."""
    try:
        loaded = image.load(k)
    except OSError as error:
        raise InputError(f"image {image.item_id[k]} cannot be decoded ({error}); leave it out") from None
    assert isinstance(loaded, Image.Image)
    return np.asarray(transform(rgb(loaded)))


@dataclass(frozen=True, eq=False)
class ClassPrompts:
    """Class prompts.

    Args:
        tokens: Tokens, (k·p, t), with p prompts for each of k classes, ordered by class.
        classes: Class of each prompt, (k·p,).
        seen: Classes seen in training, (s,).
    """

    tokens: np.ndarray
    classes: np.ndarray
    seen: np.ndarray


def prompt_tokens(
    templates: Sequence[str], names: Sequence[str], tokenize: Callable[[Sequence[str]], Tokens], seen: np.ndarray
) -> ClassPrompts:
    """Tokenize class prompts. Raises InputError if one is truncated, as the rest might be another class's prompt."""
    texts = [template.replace("{}", name.replace("_", " ")) for name in names for template in templates]
    classes = np.repeat(np.arange(len(names)), len(templates))
    tokens = tokenize(texts)
    if tokens.truncated:
        raise InputError(
            f"{tokens.truncated} of {len(texts)} prompts are longer than the {tokens.inputs.shape[1]} tokens that the "
            "text tower reads; shorten them or raise context_length"
        )
    return ClassPrompts(tokens.inputs.numpy(), classes, seen)


@cache
def channel_statistics(data: DatasetConfig) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each channel over the first images, in 0..1, to three decimals."""
    image, _ = _sides(load_dataset(data))
    sums, squares = np.zeros(3), np.zeros(3)
    n = 0
    for k in range(min(SAMPLE, len(image))):
        pixels = _bytes(image, k, lambda loaded: loaded).reshape(-1, 3) / 255.0
        sums += pixels.sum(0)
        squares += np.square(pixels).sum(0)
        n += len(pixels)
    mean = sums / n
    deviation = np.sqrt(np.maximum(squares / n - mean**2, 1e-6))
    return [round(float(x), 3) for x in mean], [round(float(x), 3) for x in deviation]
