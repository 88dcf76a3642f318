"""The user's own data as a data set: lists of images and texts, or pairs of them."""

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from clip_geometry.config import digest
from clip_geometry.data.base import Dataset, DatasetConfig, Side, is_unicode, revision
from clip_geometry.data.images import load_image, rgb
from clip_geometry.registry import InputError, shown

ACCEPTED = "a data set, its name or path, {'image': images, 'text': texts}, or a sequence of pairs (image, caption)"
TEXTS = ("text", "caption", "captions")


def given_dataset(
    data: Any, *, name: str = "given", identity: str | None = None, limit: int | None = None, keyed: bool = True
) -> Dataset:
    """Return a data set made of lists, {"image": images, "text": texts}, or of a sequence of pairs.

    Args:
        data: Lists or pairs. Images are PIL images or paths; an item has one text or a list of texts. Pairs are
            (image, caption or captions), (image, class number), or mappings with "image" and "text", "caption" or
            "captions".
        name: Name of the data set.
        identity: Text that identifies the content. Default: a hash of the content, if `keyed`.
        limit: Read only the first N pairs of a sequence, such as a torch Dataset; lists are used as a whole.
        keyed: Whether a store needs to identify the data.

    Raises:
        InputError: The data or an item has another type.
    """
    config = DatasetConfig(name=name, split="all")
    if isinstance(data, Mapping):
        lists = dict(data)
        if not lists or not set(lists) <= {"image", "text"} or not all(map(is_sequence, lists.values())):
            raise InputError(f"the data are {shown(data)}; expected {ACCEPTED}")
        labels = class_names = None
        if len({len(items) for items in lists.values()}) > 1:
            raise InputError(
                f"there are {len(lists['image'])} images and {len(lists['text'])} texts; expected as many images as "
                "texts (an image may have a list of texts), or two calls"
            )
        count = len(next(iter(lists.values())))
        captions = lists.get("text")
        get_image = lists.get("image", ()).__getitem__
    else:
        captions, labels, class_names = _read_pairs(data, limit)
        count = len(captions)
        get_image = partial(_image_of, data)
    if not count:
        raise InputError("the data have no items")
    ids = [str(k) for k in range(count)]
    image = text = None
    if not isinstance(data, Mapping) or "image" in data:
        image = Side("image", ids, partial(_load, get_image), labels=labels)
    if captions is not None and labels is None:
        text_ids: list[str] = []
        texts: list[str] = []
        for item, value in zip(ids, captions, strict=True):
            texts_of_item = _texts(value, item)
            text_ids += [item] * len(texts_of_item)
            texts += texts_of_item
        if texts:
            text = Side("text", text_ids, texts.__getitem__)
    if identity is None and keyed:
        facts = [] if text is None else [list(text.item_id), [text.load(k) for k in range(len(text))]]
        numbers = None if labels is None else labels.tolist()
        identity = digest([facts, numbers, _image_content(get_image, count if image else 0)])
    return Dataset(config, str(identity or ""), image, text, class_names)


def is_sequence(value: Any) -> bool:
    """Return whether the value is a sequence of items, and not a text, path or scalar."""
    is_single = isinstance(value, str | bytes | os.PathLike)
    is_scalar = getattr(value, "shape", None) == ()  # a 0-d array, which has no length
    return not (is_single or is_scalar) and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _texts(value: Any, item: str) -> list[str]:
    """Return the texts of an item as a list; raise InputError if they are not strings."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and is_unicode(text) for text in texts):
        raise InputError(f"the text of item {item} is {shown(value)}; a text or a list of texts was expected")
    return list(texts)


def _load(get_image: Callable[[int], Any], k: int) -> Image.Image:
    return _decoded(get_image(k), k)


def _decoded(image: Any, k: int) -> Image.Image:
    """Return image k in RGB, loaded from its path if it is one."""
    if isinstance(image, Image.Image):
        return rgb(image)
    if isinstance(image, str | os.PathLike):
        return load_image(Path(image).expanduser())
    raise InputError(
        f"image {k} of the data is {type(image).__name__}; a PIL image or a path was expected (a torch Dataset returns "
        "PIL images if it has no transform)"
    )


def _read_pairs(data: Any, limit: int | None) -> tuple[list[Any], np.ndarray | None, tuple[str, ...] | None]:
    """Read a sequence of pairs in one pass and return its captions by item, or its labels and class names."""
    if not is_sequence(data):
        raise InputError(f"the data are {shown(data)}; expected {ACCEPTED}")
    values: list[Any] = []  # the captions or the class of each item
    for k in range(len(data) if limit is None else min(limit, len(data))):
        try:
            values.append(_pair(data[k], k)[1])
        except OSError:  # an unreadable image is counted when it is embedded
            values.append(())
    classes = [value for value in values if value != ()]
    if not classes or not all(isinstance(value, int | np.integer) for value in classes):
        return values, None, None
    names = getattr(data, "classes", None)
    names = tuple(map(str, names)) if isinstance(names, list | tuple) and len(names) > max(classes) else None
    return values, np.array([-1 if value == () else int(value) for value in values], np.int64), names


def _image_of(data: Any, k: int) -> Any:
    return _pair(data[k], k)[0]


def _pair(row: Any, k: int) -> tuple[Any, Any]:
    """Return the image and the texts or class of an item; the texts are () if it is a mapping without texts."""
    if isinstance(row, Mapping) and "image" in row:
        return row["image"], next((row[key] for key in TEXTS if key in row), ())
    if isinstance(row, tuple | list) and len(row) == 2:
        return row[0], row[1]
    raise InputError(f"item {k} of the data is {shown(row)}; expected {ACCEPTED}")


def _image_content(get_image: Callable[[int], Any], count: int) -> Any:
    """Return what identifies images: the names, sizes and times of files, and a hash of the pixels of other images."""
    paths = []
    pixels = hashlib.sha256()
    for k in range(count):
        try:
            image_or_path = get_image(k)
            if isinstance(image_or_path, str | os.PathLike):
                paths.append(str(Path(image_or_path).expanduser().absolute()))
                continue
            image = _decoded(image_or_path, k)
            pixels.update(f"{k} {image.size}\n".encode() + image.tobytes())
        except OSError as error:
            pixels.update(f"{k} {type(error).__name__}\n".encode())
    return [revision(Path("/"), paths), pixels.hexdigest()]
