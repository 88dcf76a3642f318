"""The generated data set `scenes`: rendered images of colored shapes with captions in four languages.

Use it to train and test small image-text models without downloads. The class of a scene is the shape and color of the
main object, which is the largest. 16 of the 80 classes are marked as held out (HELD_OUT), for compositional
generalization.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from pydantic import Field

from clip_geometry.config import digest, read_yaml
from clip_geometry.data.base import Dataset, DatasetEntry, KnownSplits, Side, datasets
from clip_geometry.data.prompts import class_prompts
from clip_geometry.data.scenes.draw import CAPTIONS, COLOURS, HELD_OUT, SHAPES, Scene, Thing, labels, render, sample

__all__ = ["CAPTIONS", "GENERATOR_VERSION", "HELD_OUT", "ScenesConfig", "caption", "class_names", "load", "vocabulary"]

GENERATOR_VERSION = 1  # increment when any image or caption changes


class ScenesConfig(KnownSplits):
    """Options of the generated scenes.

    Attributes:
        size: Number of images.
        seed: Seed of the stream of scenes; each seed and split has its own stream.
        classes: Whether the main object is of a seen class, a held-out class, or any class ("all"). Filtering skips
            scenes of the stream, so scene 7 is the same image with the same item_id in "all" and in "seen".
        captions_per_image: Number of different sentences per image.
        language: Language of the captions, or of the class names in the prompts.
    """

    SPLITS = ("train", "test")
    name: Literal["scenes"] = "scenes"  # pyright: ignore[reportIncompatibleVariableOverride]
    language: Literal["en", "de", "fr", "ru"] = "en"  # pyright: ignore[reportIncompatibleVariableOverride]
    size: int = Field(default=1000, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)
    classes: Literal["all", "seen", "held_out"] = "all"
    captions_per_image: int = Field(default=1, ge=1, le=CAPTIONS)


@dataclass(frozen=True)
class _Scenes:
    """Selected scenes of one stream. Its methods are the loaders of the sides and can be sent to worker processes."""

    seed: int
    split: str
    indices: np.ndarray

    def image(self, k: int) -> Image.Image:
        return render(sample(self.seed, self.split, int(self.indices[k])))

    def caption(self, per_image: int, language: str, k: int) -> str:
        scene = sample(self.seed, self.split, int(self.indices[k // per_image]))
        return caption(scene, k % per_image, language)


def load(config: ScenesConfig) -> Dataset:
    """Load images, with captions or class prompts as texts."""
    drawn = config.size
    while True:  # until there are `size` scenes of the requested classes
        label = labels(config.seed, config.split, drawn)
        held_out = np.isin(label, HELD_OUT)
        requested = {"all": np.ones_like(held_out), "seen": ~held_out, "held_out": held_out}[config.classes]
        indices = np.flatnonzero(requested)[: config.size]
        if len(indices) == config.size:
            break
        drawn *= 2
    label = label[indices]
    scenes = _Scenes(config.seed, config.split, indices)
    ids = [f"scenes-{config.split}-{config.seed}-{index:06d}" for index in indices]
    if config.prompt is not None:
        text = class_prompts(class_names(config.language), config.prompt, config.language)
    else:
        per_image = config.captions_per_image
        load_text = partial(scenes.caption, per_image, config.language)
        text_ids = [item for item in ids for _ in range(per_image)]
        text = Side("text", text_ids, load_text, np.repeat(label, per_image), config.language)
    revision = digest({"generator": GENERATOR_VERSION, "vocabulary": vocabulary()})
    return Dataset(config, revision, Side("image", ids, scenes.image, labels=label), text, class_names())


# --- sentences about a scene in four languages; vocabulary.yaml has the inflected words

_GENDERS = "mfn"


@cache
def vocabulary() -> dict[str, Any]:
    """Return the content of vocabulary.yaml."""
    return read_yaml(Path(__file__).with_name("vocabulary.yaml"))


def _form(word: str | list | Mapping, case: str, gender: str) -> str:
    """Return the form of a word in vocabulary.yaml: a mapping is by case, a list by gender, a string is invariable."""
    if isinstance(word, Mapping):
        word = word[case]
    return word if isinstance(word, str) else word[_GENDERS.index(gender)]


@dataclass(frozen=True)
class _Phrase:
    """Words that agree in gender; a format string selects their case: "{main:dat}"."""

    pattern: str
    words: Mapping[str, Any]
    gender: str

    def __format__(self, case: str) -> str:
        return self.pattern.format(**{name: _form(word, case, self.gender) for name, word in self.words.items()})


def _object(words: Mapping[str, Any], thing: Thing) -> _Phrase:
    """Return the words for one object of a scene: article, size, color and shape."""
    shape = words["shapes"][thing.shape]
    parts = {
        "article": words.get("article", ""),
        "size": words["sizes"][thing.size],
        "colour": words["colours"][thing.colour],
        "shape": shape["noun"],
    }
    return _Phrase(words["phrase"], parts, shape["gender"])


def caption(scene: Scene, number: int, language: str = "en") -> str:
    """Return caption 0, …, 4 of a scene, in its own order of templates; caption n says the same in every language."""
    words = vocabulary()[language]
    template = words["templates"][scene.order[number]]
    main = _object(words, scene.main)
    fillers = {
        "main": main,
        "place": words["places"][scene.place],
        "background": _Phrase("{word}", {"word": words["backgrounds"][scene.background]}, "m"),
        "agree": _form(template.get("agree", ""), "", main.gender),
        **{name: _object(words, thing) for name, thing in zip("ab", scene.extras, strict=False)},
    }
    extras = template["extras"][len(scene.extras)] if "extras" in template else ""
    text = template["text"].format(**fillers, extras=extras.format(**fillers))
    return text[0].upper() + text[1:]


@cache
def class_names(language: str = "en") -> tuple[str, ...]:
    """Return the 80 class names in the order of the labels, such as "red circle", in the nominative."""
    words = vocabulary()[language]
    names = []
    for shape in SHAPES:
        entry = words["shapes"][shape]
        for colour in COLOURS:
            parts = {"colour": words["colours"][colour], "shape": entry["noun"]}
            names.append(format(_Phrase(words["class_name"], parts, entry["gender"]), "nom"))
    return tuple(names)


datasets.add("scenes", DatasetEntry(ScenesConfig, load))
