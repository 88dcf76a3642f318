"""Stored embeddings that replace a data set and a model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from clip_geometry.config import Config, digest
from clip_geometry.data.base import revision
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.io.labels import read_labels, with_labels
from clip_geometry.io.sources import read, read_embeddings
from clip_geometry.registry import InputError

Part = Literal["first", "rest"]


class RandomSplit(Config):
    """A random split of n items into two parts.

    The first part is the first ⌊share · n⌋ items of a seeded torch.randperm(n), and the second part is the rest.

    Args:
        share: Fraction of the items that are in the first part.
        seed: Seed of torch.randperm.
    """

    share: float = Field(gt=0, lt=1)
    seed: int = Field(default=0, ge=0, lt=2**63)

    def items(self, n: int, part: Part) -> np.ndarray:
        """Return the indices of the items in a part.

        Args:
            n: Number of items.
            part: "first" or "rest".
        """
        order = torch.randperm(n, generator=torch.Generator().manual_seed(self.seed)).numpy()
        count = int(self.share * n)
        return order[:count] if part == "first" else order[count:]

    def named(self, part: Part) -> str:
        """Return the description of a part that result rows use."""
        return f"{'first' if part == 'first' else 'last'} part of a random {self.share:g} split, seed {self.seed}"


def part_of(sets: Mapping[str, Embeddings], split: RandomSplit, part: Part) -> dict[str, Embeddings]:
    """Return one part of the images with the captions of these images.

    Captions are matched to images by item id. If a set has no item ids, the captions are the same row numbers.

    Args:
        sets: "image" and "text" → embeddings.
        split: The split of the images.
        part: "first" or "rest".
    """
    image, text = sets["image"], sets["text"]
    images = split.items(len(image), part)
    texts = images
    if image.item_id is not None and text.item_id is not None:
        texts = np.flatnonzero(np.isin(text.item_id, image.item_id[images]))
    taken = {"image": image.take(images), "text": text.take(texts)}
    return {
        modality: replace(rows, provenance={**rows.provenance, "split": split.named(part)})
        for modality, rows in taken.items()
    }


class SplitConfig(RandomSplit):
    """Options that choose one part of a random split of the rows.

    Images and texts are split in the same order, so aligned rows remain pairs.

    Args:
        part: "first" or "rest".
    """

    part: Part

    def __str__(self) -> str:
        return self.named(self.part)


class StoredConfig(Config):
    """Options of stored embeddings as the source of a config, either one file or folder, or one file per modality.

    Args:
        embeddings: A file or folder that `clip-geometry measure` accepts.
        image: A file of image embeddings, instead of `embeddings`.
        text: A file of text embeddings, instead of `embeddings`.
        labels: A file with one label per row; null for the labels that the embeddings carry. The labels apply to
            `image` if it is given, or else to every set with that number of rows.
        encoder: The model that computed the embeddings, for the result rows.
        dataset: The name of the data, for the result rows; null for the name of the file or folder.
        part: The split of the data that the files hold, for the result rows.
        rows: The range [first, end) of rows to use from every set; null for all.
    """

    embeddings: Path | None = None
    image: Path | None = None
    text: Path | None = None
    labels: Path | None = None
    encoder: str | None = None
    dataset: str | None = None
    part: str | None = None
    rows: tuple[int, int] | None = None

    @model_validator(mode="after")
    def _some_rows(self) -> Self:
        """Check that embeddings are given in one way, with a valid range of rows."""
        if (self.embeddings is None) == (self.image is None and self.text is None):
            raise InputError("stored embeddings need either `embeddings`, one file or folder, or `image` and `text`")
        if self.rows is not None and not 0 <= self.rows[0] < self.rows[1]:
            raise InputError(f"rows = {list(self.rows)}; expected [first, end] with 0 ≤ first < end")
        return self

    @property
    def places(self) -> dict[str, Path]:
        """The given paths by key."""
        paths = {"embeddings": self.embeddings, "image": self.image, "text": self.text, "labels": self.labels}
        return {key: path for key, path in paths.items() if path is not None}

    @property
    def name(self) -> str:
        """The name of the data set, or else the name of the first file or folder."""
        return self.dataset or next(iter(self.places.values())).name


class StoredProbe(Config):
    """Stored embeddings that replace a labeled data set: images with `labels`, and one text per class.

    Text k is the prompt of class k, unless the file of the texts has labels.

    Args:
        train: Embeddings of the training split; null for none.
        test: Embeddings of the test split.
    """

    train: StoredConfig | None = None
    test: StoredConfig

    @model_validator(mode="after")
    def _labeled(self) -> Self:
        """Check that every split of a stored probe has the prompts of the classes."""
        given = [split for split in (self.train, self.test) if split is not None]
        if any(split.text is None and split.embeddings is None for split in given):
            raise InputError(
                "a stored probe needs image embeddings, their labels, and the prompts of the classes as `text`"
            )
        return self

    @property
    def name(self) -> str:
        return self.test.name


def class_prompts(sets: Mapping[str, Embeddings]) -> dict[str, Embeddings]:
    """Return the sets with the texts as class prompts; if the texts have no labels, text k is the prompt of class k."""
    text = sets["text"]
    labels = np.arange(len(text)) if text.labels is None else text.labels
    return {**sets, "text": replace(text, labels=labels, pair_on="label")}


def read_stored(config: StoredConfig, limit: int | None = None) -> Mapping[str, Embeddings]:
    """Read stored embeddings.

    Args:
        config: Options of the embeddings.
        limit: Use only the first N rows of every set. Default: all.

    Returns:
        Modality → embeddings.

    Raises:
        InputError: If there are fewer rows than the config requests.
    """
    first, end = config.rows or (0, None)
    chosen = None if config.rows is None else f"rows {first} to {end}"
    description = ", ".join(text for text in (config.part, chosen) if text is not None)
    split = {"split": description} if description else {}
    encoder = {} if config.encoder is None else {"model": config.encoder}
    if config.embeddings is not None:
        stored = read(config.embeddings, unnamed="image")
    else:
        stored = {
            modality: read_embeddings(place, modality=modality)
            for modality, place in (("image", config.image), ("text", config.text))
            if place is not None
        }
    if config.labels is not None:
        labeled = stored if config.image is None else {"image": stored["image"]}
        stored = {**stored, **with_labels(labeled, read_labels(config.labels))}
    sets = {}
    for modality, side in stored.items():
        if end is not None and len(side) < end:
            raise InputError(f"{config.name} has {len(side)} {modality} rows, but rows = [{first}, {end}]")
        rows = side.take(slice(first, end))
        known = {key: value for key, value in side.provenance.items() if key != "source"}
        provenance = {"dataset": config.name, **known, **split, **encoder}
        sets[modality] = replace(rows if limit is None else rows.take(slice(limit)), provenance=provenance)
    return sets


def stored_revision(config: StoredConfig) -> str:
    """Return a hash that changes if a file of the embeddings or their labels changes."""
    hashes: list[Any] = []
    for key, path in config.places.items():
        names = sorted(str(file.relative_to(path)) for file in path.rglob("*")) if path.is_dir() else [path.name]
        of_files = revision(path if path.is_dir() else path.parent, names)
        hashes.append(of_files if key == "labels" else digest(of_files))
    return hashes[0] if len(hashes) == 1 else digest(hashes)


def check_sources(model: EncoderConfig | None, **roles: Any) -> None:
    """Check that data sets have a model and that stored embeddings have none.

    Raises:
        InputError: If one of the roles violates this.
    """
    for role, data in roles.items():
        if isinstance(data, StoredConfig) and model is not None:
            raise InputError(f"{role} has stored embeddings, which need no model; set model to null")
        if not isinstance(data, StoredConfig) and model is None:
            raise InputError(f"{role} is the data set {data.name}, which a model has to embed; set model")
