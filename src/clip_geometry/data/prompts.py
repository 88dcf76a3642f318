"""Class prompts, which are the text side of labeled images, and published templates for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.catalog import read_yaml
from clip_geometry.data.base import Side
from clip_geometry.registry import InputError

# name of a set of templates → its language and its templates
TEMPLATES: Mapping[str, Mapping[str, Any]] = read_yaml(Path(__file__).with_name("prompts.yaml"))


def class_prompts(class_names: Sequence[str], prompt: str, language: str = "en") -> Side:
    """Return a text side with one prompt per class, or several for a set of templates.

    The label of a prompt is its class, and the prompt is paired with every image of this class. Its item_id is
    "class-<k>", or "class-<k>-<template>" if there are several templates.

    Args:
        class_names: The class names of the data set.
        prompt: A template with one "{}", which is replaced by the class name with "_" as space, or one "{_}", which
            keeps each "_"; or the name of a set of templates in prompts.yaml ("clip-cifar": CLIP's 18,
            "clip-imagenet": CLIP's 80).
        language: Language of the class names.

    Raises:
        InputError: The prompt has another form, or the templates are written in another language.
    """
    template_set = TEMPLATES.get(prompt, {"language": language, "templates": [prompt]})
    if template_set["language"] != language:
        raise InputError(f"prompt {prompt!r} is written in {template_set['language']!r}, but language is {language!r}")
    templates = template_set["templates"]
    counts = [template.count("{}") + template.count("{_}") for template in templates]
    if any(count != 1 for count in counts):
        raise InputError(
            f"prompt {prompt!r} has {{}} {counts[0]} times; expected it once, or a set of templates: "
            f"{', '.join(TEMPLATES)}"
        )
    texts = [
        template.replace("{}", name.replace("_", " ")) if "{}" in template else template.replace("{_}", name)
        for name in class_names
        for template in templates
    ]
    ids = [f"class-{k}" for k in range(len(class_names))]
    if len(templates) > 1:
        ids = [f"{class_id}-{t}" for class_id in ids for t in range(len(templates))]
    labels = np.repeat(np.arange(len(class_names), dtype=np.int64), len(templates))
    return Side("text", ids, texts.__getitem__, labels, language, pair_on="label")
