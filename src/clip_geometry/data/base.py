"""The parts of a data set: its config, its sides of images and texts, words of texts, its revision; the registry."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from errno import EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image
from pydantic import field_validator

from clip_geometry.config import Config, digest
from clip_geometry.registry import Registry, did_you_mean, of_packages

# runs of letters and digits, joined by apostrophes and hyphens and, between digits, by points and commas; runs of
# anything else that is not space
WORDS = re.compile(r"\w+(?:['’\-]\w+|(?<=\d)[.,](?=\d)\w+)*|[^\w\s]+")
# errors that mean a missing file; others, such as those of a failing disk, are raised: a sound file is not missing
NOT_THERE = (ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG)


def words_of(text: str) -> tuple[str, ...]:
    """Return the attribute `words` that the sentences of a corpus have, or else the WORDS of the text."""
    return getattr(text, "words", None) or tuple(WORDS.findall(text))


@dataclass(frozen=True)
class Side:
    """One modality of a data set.

    Attributes:
        modality: "image" or "text".
        item_id: The id of each row.
        load: k → an RGB PIL image or a string; raises OSError (PIL.UnidentifiedImageError is one) for an image that
            cannot be decoded.
        labels: (n,) int64, indices into `Dataset.class_names` if the set has classes.
        language: Of the texts.
        pair_on: "label" if one row stands for all items of its label (class prompts), else "item_id".
        dropped: Item id → how many of its captions the config leaves out.
    """

    modality: str
    item_id: Sequence[str]
    load: Callable[[int], Image.Image | str]
    labels: np.ndarray | None = None
    language: str | None = None
    pair_on: str = "item_id"
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.item_id)

    @cached_property
    def word_counts(self) -> Mapping[str, int]:
        """How often each word, as written, occurs in all texts of the side."""
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

    def only(self, modality: str) -> "Dataset":
        """The data set with one of its sides, which may be none."""
        return replace(self, **{side.modality: None for side in self.sides if side.modality != modality})


class DatasetConfig(Config):
    """Fields of every data set; a subclass fixes `name` and adds its own.

    Attributes:
        name: Of the data set.
        split: "train" or "test" if the set has splits.
        language: Of the texts.
        prompt: If given (and the set has class names), the text side is one prompt per class, with the class name in
            place of "{}" (of "{_}", with its underscores); or several per class for the name of a set of prompts
            ("clip-cifar").
    """

    name: str
    split: str = "test"
    language: str = "en"
    prompt: str | None = None


class KnownSplits(DatasetConfig):
    """A set with the splits SPLITS."""

    SPLITS: ClassVar[tuple[str, ...]]

    @field_validator("split")
    @classmethod
    def _known_split(cls, split: str) -> str:
        return known_split(split, cls.SPLITS)


class WithoutClasses(DatasetConfig):
    """Captions or sentences, which have no classes and so no prompts."""

    @field_validator("prompt")
    @classmethod
    def _no_classes(cls, prompt: str | None) -> str | None:
        if prompt is not None:
            raise ValueError("a prompt needs class names, and this data set has texts of its own instead; leave it out")
        return prompt


class FilesConfig(KnownSplits):
    """A set made of the user's own files at `path`, which have no splits."""

    SPLITS = ("all",)
    split: str = "all"
    path: Path


class CaptionsOnly(WithoutClasses):
    """Captions and, in the folder `images`, the images they name."""

    images: Path | None = None


def known_split(split: str, known: Sequence[str]) -> str:
    """Return the split; raise ValueError, which pydantic reports for this key, if it is not known."""
    if split not in known:
        hint = did_you_mean(split, known) or f"; known are {', '.join(known)}"
        raise ValueError(f"unknown split {split!r}{hint}")
    return split


def is_unicode(text: str) -> bool:
    """Return False for lone surrogates, which file names and JSON may bring and no output file can hold."""
    return re.search("[\ud800-\udfff]", text) is None


def revision(root: Path, names: Iterable[str]) -> str:
    """Return the hash of names (relative to `root`), sizes and modification times; a missing file counts as missing."""
    facts: list[list[str | int]] = []
    for name in names:
        facts.append([name])
        try:
            status = (root / name).stat()
        except ValueError:  # a NUL in the name
            continue
        except OSError as error:
            if error.errno not in NOT_THERE:
                raise
            continue
        facts[-1] += [status.st_size, status.st_mtime_ns]
    return digest(facts)


@dataclass(frozen=True)
class DatasetEntry:
    config: type[DatasetConfig]
    load: Callable[[Any], Dataset]


# other packages have modules that register further data sets
datasets: Registry[DatasetEntry] = Registry(
    "data set", "clip-geometry list datasets", more=[entry.module for entry in of_packages("clip_geometry.datasets")]
)
