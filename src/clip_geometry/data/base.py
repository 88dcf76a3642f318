"""The parts of a data set (config, image and text sides, words of texts, revision) and the registry of data sets."""

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

# A word is a run of letters and digits, which apostrophes and hyphens may join, as may points and commas between
# digits, or a run of other characters that are not spaces.
WORDS = re.compile(r"\w+(?:['’\-]\w+|(?<=\d)[.,](?=\d)\w+)*|[^\w\s]+")
# errors of a missing file; other errors, such as those of a failing disk, are raised, because the file may be intact
NOT_THERE = (ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG)


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text: its attribute `words`, which the sentences of a corpus have, or else its WORDS."""
    return getattr(text, "words", None) or tuple(WORDS.findall(text))


@dataclass(frozen=True)
class Side:
    """One modality of a data set.

    Attributes:
        modality: "image" or "text".
        item_id: The id of each row.
        load: Function k → the RGB PIL image or the string of row k. It raises OSError (PIL.UnidentifiedImageError is
            one) for an image that cannot be decoded.
        labels: (n,) int64, indices into `Dataset.class_names` if the data set has classes.
        language: Language of the texts.
        pair_on: "label" if one row stands for all items of its label (class prompts), else "item_id".
        dropped: Item id → number of its captions that the config leaves out.
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
        """Word → number of occurrences in all texts of the side; case matters."""
        texts = (self.load(k) for k in range(len(self)))
        return Counter(word for text in texts if isinstance(text, str) for word in words_of(text))


@dataclass(frozen=True)
class Dataset:
    """A data set with an image side and a text side. Rows of both sides with the same item id belong together.

    `load_dataset` returns it, and `embed` takes it. A side has the id of each row (`item_id`), a function from a row
    number to an RGB image or a string (`load`), and possibly labels.

    Attributes:
        config: All options of the data set, including the defaults.
        revision: Hash of the files of the data set, which changes when the data change.
        image: The image side; None if the data set has no images.
        text: The text side; None if the data set has no texts.
        class_names: Names of the classes; None if the data set has no classes.
    """

    config: "DatasetConfig"
    revision: str
    image: Side | None = None
    text: Side | None = None
    class_names: tuple[str, ...] | None = None

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that the data set has, images first."""
        return tuple(side for side in (self.image, self.text) if side is not None)

    def only(self, modality: str) -> "Dataset":
        """Return the data set with only the given side, or with no side if it lacks this one."""
        return replace(self, **{side.modality: None for side in self.sides if side.modality != modality})


class DatasetConfig(Config):
    """Base class of the options of a data set. A subclass fixes `name` and adds fields of its own.

    `resolve_dataset` returns an instance. Unknown and invalid options raise an error.

    Attributes:
        name: Name of the data set.
        split: Part of the data to load, "train" or "test", if the data set has such parts.
        language: Language of the texts.
        prompt: Template of class prompts, such as "a photo of a {}.", for data sets with class names. The text side
            then has one prompt per class, in which the class name replaces "{}", or "{_}" to keep its underscores. The
            name of a set of templates, "clip-cifar", gives several prompts per class.
    """

    name: str
    split: str = "test"
    language: str = "en"
    prompt: str | None = None


class KnownSplits(DatasetConfig):
    """Options of a data set with the splits SPLITS."""

    SPLITS: ClassVar[tuple[str, ...]]

    @field_validator("split")
    @classmethod
    def _known_split(cls, split: str) -> str:
        return known_split(split, cls.SPLITS)


class WithoutClasses(DatasetConfig):
    """Options of captions or sentences, which have no classes and therefore no prompts."""

    @field_validator("prompt")
    @classmethod
    def _no_classes(cls, prompt: str | None) -> str | None:
        if prompt is not None:
            raise ValueError("a prompt needs class names, but this data set has its own texts; leave the prompt out")
        return prompt


class FilesConfig(KnownSplits):
    """Options of a data set of the user's own files at `path`, which have no splits."""

    SPLITS = ("all",)
    split: str = "all"
    path: Path


class CaptionsOnly(WithoutClasses):
    """Options of captions that name images in the folder `images`."""

    images: Path | None = None


def known_split(split: str, known: Sequence[str]) -> str:
    """Return the split; raise ValueError, which pydantic reports for the key, if it is unknown."""
    if split not in known:
        hint = did_you_mean(split, known) or f"; known are {', '.join(known)}"
        raise ValueError(f"unknown split {split!r}{hint}")
    return split


def is_unicode(text: str) -> bool:
    """Return False for text with lone surrogates, which may occur in file names and JSON but not in output files."""
    return re.search("[\ud800-\udfff]", text) is None


def revision(root: Path, names: Iterable[str]) -> str:
    """Return a hash of file names (relative to `root`), sizes and modification times; files may be missing."""
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


# modules of other packages register more data sets
datasets: Registry[DatasetEntry] = Registry(
    "data set", "clip-geometry list datasets", more=[entry.module for entry in of_packages("clip_geometry.datasets")]
)
