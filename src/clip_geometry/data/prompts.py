"""Class prompts: the text side of a labelled set of images."""

from collections.abc import Sequence

import numpy as np

from clip_geometry.data.base import Side
from clip_geometry.data.templates import LANGUAGES, TEMPLATES
from clip_geometry.registry import InputError


def class_prompts(class_names: Sequence[str], prompt: str, language: str = "en") -> Side:
    """One text per class: `prompt` with its "{}" replaced by the class name ("_" becomes a space).

    prompt: with one "{}", or the name of several in TEMPLATES ("clip-cifar": CLIP's 18), which give several texts per
    class, an ensemble. Texts have their class as label and item_id "class-<k>", of several "class-<k>-<template>";
    they pair on the label, with every image of their class. Raises InputError for any other prompt,
    and for one of them in another language.
    """
    templates = TEMPLATES.get(prompt, (prompt,))
    if prompt in TEMPLATES and language != LANGUAGES.get(prompt, "en"):
        raise InputError(
            f"prompt {prompt!r} is written in {LANGUAGES.get(prompt, 'en')!r}, but language is {language!r}"
        )
    if any(template.count("{}") != 1 for template in templates):
        raise InputError(
            f"prompt {prompt!r} contains {{}} {prompt.count('{}')} times; it is needed once, where the class name "
            f'goes, as in "a photo of a {{}}", or one of the sets {", ".join(TEMPLATES)}'
        )
    several = len(templates) > 1
    names = [name.replace("_", " ") for name in class_names]
    texts = [template.replace("{}", name) for name in names for template in templates]
    return Side(
        modality="text",
        item_id=[f"class-{k}" + f"-{t}" * several for k in range(len(names)) for t in range(len(templates))],
        load=texts.__getitem__,
        labels=np.repeat(np.arange(len(names), dtype=np.int64), len(templates)),
        language=language,
        pair_on="label",
    )
