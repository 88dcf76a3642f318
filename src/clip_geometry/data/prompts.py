"""Class prompts: the text side of a labelled set of images."""

from collections.abc import Sequence

import numpy as np

from clip_geometry.data.base import Side
from clip_geometry.registry import InputError


def class_prompts(class_names: Sequence[str], prompt: str, language: str = "en") -> Side:
    """One text per class: `prompt` with its "{}" replaced by the class name ("_" becomes a space).

    Row k has label k and item_id "class-<k>"; it pairs on the label, with every image of its class.
    Raises InputError unless `prompt` contains "{}" exactly once.
    """
    if prompt.count("{}") != 1:
        raise InputError(
            f"prompt {prompt!r} contains {{}} {prompt.count('{}')} times; it is needed once, "
            'where the class name goes, as in "a photo of a {}"'
        )
    texts = [prompt.replace("{}", name.replace("_", " ")) for name in class_names]
    return Side(
        modality="text",
        item_id=[f"class-{k}" for k in range(len(texts))],
        load=texts.__getitem__,
        labels=np.arange(len(texts), dtype=np.int64),
        language=language,
        pair_on="label",
    )
