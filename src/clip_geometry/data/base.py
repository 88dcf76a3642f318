"""What a data set is: up to two sides, images and texts, each a sequence that can be indexed."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image

from clip_geometry.config import Config
from clip_geometry.data.corpus_words import words_of
from clip_geometry.registry import Registry


@dataclass(frozen=True)
class Side:
    """One modality of a data set. `load(k)` gives an RGB PIL image or a string.

    `load` raises OSError (PIL.UnidentifiedImageError is one) for an image that cannot be decoded.
    pair_on: "label" where one row stands for all items of its label (class prompts), else "item_id".
    """

    modality: str
    item_id: Sequence[str]
    load: Callable[[int], Image.Image | str]
    labels: np.ndarray | None = None  # (n,) int64, indices into Dataset.class_names where there are such
    language: str | None = None
    pair_on: str = "item_id"

    def __len__(self) -> int:
        return len(self.item_id)

    @cached_property
    def word_counts(self) -> Mapping[str, int]:
        """How often each word occurs in all the texts of the side, as it is written."""
        texts = (self.load(k) for k in range(len(self)))
        return Counter(word for text in texts if isinstance(text, str) for word in words_of(text))


@dataclass(frozen=True)
class Dataset:
    """Sides that share item ids. `config` is the resolved config; `revision` identifies the files behind it."""

    config: "DatasetConfig"
    revision: str
    image: Side | None = None
    text: Side | None = None
    class_names: tuple[str, ...] | None = None

    @property
    def sides(self) -> tuple[Side, ...]:
        return tuple(side for side in (self.image, self.text) if side is not None)


class DatasetConfig(Config):
    """Fields of every data set. A subclass fixes `name` and adds its own.

    split: "train" or "test" where the set has such. language: of the texts.
    prompt: where given (and the set has class names), the text side is one prompt per class, "{}" its place; or the
    several of a named set ("clip-cifar").
    """

    name: str
    split: str = "test"
    language: str = "en"
    prompt: str | None = None


@dataclass(frozen=True)
class DatasetEntry:
    config: type[DatasetConfig]
    load: Callable[[Any], Dataset]
    summary: str


datasets: Registry[DatasetEntry] = Registry("data set", "clip-geometry list datasets")
