"""Data for training and measurement: images as bytes, captions as tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from clip_geometry.config import digest
from clip_geometry.data import load_dataset
from clip_geometry.data.base import Dataset, DatasetConfig, Side
from clip_geometry.data.images import rgb
from clip_geometry.encoders.base import Tokens
from clip_geometry.progress import note, progress
from clip_geometry.registry import InputError

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
