"""Class prompts, the text side of a labeled set of images, and the published templates of such prompts."""

from collections.abc import Sequence

import numpy as np

from clip_geometry.data.base import Side
from clip_geometry.registry import InputError

_KINDS = ("blurry ", "black and white ", "low contrast ", "high contrast ", "bad ", "good ")

# The templates that CLIP's authors used for CIFAR-10 and CIFAR-100 alike, from data/prompts.md of
# github.com/openai/CLIP (commit 04f4dc2), copyright (c) 2021 OpenAI, licenses/MIT-OpenAI-CLIP.txt; an ensemble averages
# them as their notebook Prompt_Engineering_for_ImageNet.ipynb does (`zero_shot.ensemble`).
CLIP_CIFAR: tuple[str, ...] = tuple(
    template
    for article in ("a", "the")
    for template in (
        f"a photo of {article} {{}}.",
        *(f"a {kind}photo of {article} {{}}." for kind in _KINDS),
        f"a photo of {article} small {{}}.",
        f"a photo of {article} big {{}}.",
    )
)
# Tyshchuk et al. 2023 (sections 4 and 7); the English one was chosen by test accuracy
PAPER = "low-resolution photo of a {}"
PAPER_RUSSIAN = "изображение {}"

TEMPLATES: dict[str, tuple[str, ...]] = {
    "clip-cifar": CLIP_CIFAR,
    "paper": (PAPER,),
    "paper-ru": (PAPER_RUSSIAN,),
}
IMAGENET = "clip-imagenet"
LANGUAGES = {"paper-ru": "ru"}  # of the templates; the others are English


def imagenet_templates() -> tuple[str, ...]:
    """The 80 templates that CLIP's authors used for ImageNet, which open_clip has; importing it takes seconds."""
    from open_clip import OPENAI_IMAGENET_TEMPLATES

    return tuple(template("{}") for template in OPENAI_IMAGENET_TEMPLATES)


def class_prompts(class_names: Sequence[str], prompt: str, language: str = "en") -> Side:
    """Return the text side with one text per class, or several for a set of prompts.

    Texts have their class as label and pair on it, with every image of their class. Their item_id is "class-<k>", or
    "class-<k>-<template>" for several.

    Args:
        class_names: As the data set has them.
        prompt: With one "{}" for the class name, whose "_" becomes a space, or one "{_}", which keeps it; or the name
            of several in TEMPLATES ("clip-cifar": CLIP's 18) or "clip-imagenet" (CLIP's 80).
        language: Of the class names.

    Raises:
        InputError: For any other prompt, and for templates written in another language.
    """
    templates = imagenet_templates() if prompt == IMAGENET else TEMPLATES.get(prompt, (prompt,))
    if prompt in (*TEMPLATES, IMAGENET) and language != LANGUAGES.get(prompt, "en"):
        raise InputError(
            f"prompt {prompt!r} is written in {LANGUAGES.get(prompt, 'en')!r}, but language is {language!r}"
        )
    places = [template.count("{}") + template.count("{_}") for template in templates]
    if any(count != 1 for count in places):
        raise InputError(
            f"prompt {prompt!r} contains {{}} {places[0]} times; it is needed once, where the class name "
            f'goes, as in "a photo of a {{}}", or one of the sets {", ".join((*TEMPLATES, IMAGENET))}'
        )
    several = len(templates) > 1
    texts = [
        template.replace("{}", name.replace("_", " ")) if "{}" in template else template.replace("{_}", name)
        for name in class_names
        for template in templates
    ]
    return Side(
        modality="text",
        item_id=[f"class-{k}" + f"-{t}" * several for k in range(len(class_names)) for t in range(len(templates))],
        load=texts.__getitem__,
        labels=np.repeat(np.arange(len(class_names), dtype=np.int64), len(templates)),
        language=language,
        pair_on="label",
    )
