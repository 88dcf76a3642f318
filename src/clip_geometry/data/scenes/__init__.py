"""The embedded data set `scenes`: rendered pictures of coloured shapes with captions in four languages.

Made for training and testing small image-text models without any download. A class is the shape and colour of the
main object, the largest; 16 of the 80 classes are marked held out (HELD_OUT), for compositional generalisation.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from PIL import Image
from pydantic import Field, field_validator

from clip_geometry.config import digest
from clip_geometry.data.base import Dataset, DatasetConfig, DatasetEntry, Side, datasets
from clip_geometry.data.scenes.captions import caption, class_names, vocabulary
from clip_geometry.data.scenes.draw import render
from clip_geometry.data.scenes.layout import CAPTIONS, HELD_OUT, labels, sample

__all__ = ["CAPTIONS", "GENERATOR_VERSION", "HELD_OUT", "ScenesConfig", "class_names", "load"]

GENERATOR_VERSION = 1  # raise it with any change that changes a picture or the words of a caption

LANGUAGES = ("en", "de", "fr", "ru")


class ScenesConfig(DatasetConfig):
    """size: the number of images. classes: those whose main object is of a seen or a held-out class, or all.

    A filter passes over scenes: number 7 is the same picture under the same item_id in "all" and in "seen".
    seed: another one is another stream of scenes, as is the other split. captions_per_image: different sentences.
    language: of the captions, or of the class names in the prompts.
    """

    name: str = "scenes"
    size: int = Field(default=1000, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)
    classes: Literal["all", "seen", "held_out"] = "all"
    captions_per_image: int = Field(default=1, ge=1, le=CAPTIONS)

    @field_validator("name", "split", "language")
    @classmethod
    def _known(cls, value: str, info) -> str:
        known = {"name": ("scenes",), "split": ("train", "test"), "language": LANGUAGES}[info.field_name]
        if value not in known:
            raise ValueError(f"{value!r} is not one of {', '.join(known)}")
        return value


@dataclass(frozen=True)
class _Scenes:
    """Chosen scenes of one stream; its methods are what the sides load (and can be sent to worker processes)."""

    seed: int
    split: str
    chosen: np.ndarray

    def image(self, k: int) -> Image.Image:
        return render(sample(self.seed, self.split, int(self.chosen[k])))

    def caption(self, per_image: int, language: str, k: int) -> str:
        scene = sample(self.seed, self.split, int(self.chosen[k // per_image]))
        return caption(scene, k % per_image, language)


def _choose(config: ScenesConfig) -> tuple[np.ndarray, np.ndarray]:
    """Indices and labels, (size,) int64 each, of the first scenes whose class is asked for."""
    drawn = config.size
    while True:
        label = labels(config.seed, config.split, drawn)
        held_out = np.isin(label, HELD_OUT)
        wanted = {"all": np.ones_like(held_out), "seen": ~held_out, "held_out": held_out}[config.classes]
        chosen = np.flatnonzero(wanted)[: config.size]
        if len(chosen) == config.size:
            return chosen, label[chosen]
        drawn *= 2


def load(config: ScenesConfig) -> Dataset:
    """Images on the one side; captions, or one prompt per class, on the other."""
    chosen, label = _choose(config)
    scenes = _Scenes(config.seed, config.split, chosen)
    ids = [f"scenes-{config.split}-{config.seed}-{index:06d}" for index in chosen]
    return Dataset(
        config=config,
        revision=digest({"generator": GENERATOR_VERSION, "vocabulary": vocabulary()}),
        image=Side("image", ids, scenes.image, labels=label),
        text=_prompts(config) if config.prompt is not None else _captions(config, scenes, ids, label),
        class_names=class_names(),
    )


def _captions(config: ScenesConfig, scenes: _Scenes, ids: list[str], label: np.ndarray) -> Side:
    per_image = config.captions_per_image
    return Side(
        "text",
        [item for item in ids for _ in range(per_image)],
        partial(scenes.caption, per_image, config.language),
        labels=np.repeat(label, per_image),
        language=config.language,
    )


def _prompts(config: ScenesConfig) -> Side:
    from clip_geometry.data.prompts import class_prompts

    return class_prompts(class_names(config.language), config.prompt or "", config.language)


datasets.add("scenes", DatasetEntry(ScenesConfig, load, "rendered coloured shapes with captions in en, de, fr, ru"))
