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
        rows, labels, class_names = next(iter(lists.values())), None, None
        if len({len(each) for each in lists.values()}) > 1:
            given = f"there are {len(lists['image'])} images and {len(lists['text'])} texts"
            raise InputError(f"{given}; expected as many of each (the texts of an image may be a list), or two calls")
        captions = lists.get("text")
        given_image = lists.get("image", ()).__getitem__
    else:
        captions, labels, class_names = _read_pairs(data, limit)
        rows, given_image = captions, partial(_image_of, data)
    if not len(rows):
        raise InputError("the data have no items")
    ids = [str(k) for k in range(len(rows))]
    image = text = None
    if not isinstance(data, Mapping) or "image" in data:
        image = Side("image", ids, partial(_load, given_image), labels=labels)
    if captions is not None and labels is None:
        texts = [(item, each) for item, given in zip(ids, captions, strict=True) for each in _texts(given, item)]
        if texts:
            text = Side("text", [item for item, _ in texts], [each for _, each in texts].__getitem__)
    if identity is None and keyed:
        facts = [] if text is None else [list(text.item_id), [text.load(k) for k in range(len(text))]]
        numbers = None if labels is None else labels.tolist()
        identity = digest([facts, numbers, _content(given_image, len(rows) if image else 0)])
    return Dataset(config, str(identity or ""), image, text, class_names)


def is_sequence(given: Any) -> bool:
    """Return whether the value is a sequence of items, and no text, path or scalar."""
    is_one = isinstance(given, str | bytes | os.PathLike)
    is_scalar = getattr(given, "shape", None) == ()  # a 0-d array, which has no length
    return not (is_one or is_scalar) and hasattr(given, "__getitem__") and hasattr(given, "__len__")


def _texts(given: Any, item: str) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not all(isinstance(each, str) and is_unicode(each) for each in texts):
        raise InputError(f"the text of item {item} is {shown(given)}; a text or a list of texts was expected")
    return list(texts)


def _load(given_image: Callable[[int], Any], k: int) -> Image.Image:
    return _opened(given_image(k), k)


def _opened(given: Any, k: int) -> Image.Image:
    if isinstance(given, Image.Image):
        return rgb(given)
    if isinstance(given, str | os.PathLike):
        return load_image(Path(given).expanduser())
    expected = "a PIL image or a path was expected (a torch Dataset gives PIL images without its transform)"
    raise InputError(f"image {k} of the data is {type(given).__name__}; {expected}")


def _read_pairs(data: Any, limit: int | None) -> tuple[list[Any], np.ndarray | None, tuple[str, ...] | None]:
    """Read a sequence of pairs in one pass and return its captions by item, or its labels and class names."""
    if not is_sequence(data):
        raise InputError(f"the data are {shown(data)}; expected {ACCEPTED}")
    second: list[Any] = []
    for k in range(len(data) if limit is None else min(limit, len(data))):
        try:
            second.append(_pair(data[k], k)[1])
        except OSError:  # an unreadable image is counted when it is embedded
            second.append(())
    classes = [each for each in second if each != ()]
    if not classes or not all(isinstance(each, int | np.integer) for each in classes):
        return second, None, None
    names = getattr(data, "classes", None)
    names = tuple(map(str, names)) if isinstance(names, list | tuple) and len(names) > max(classes) else None
    return second, np.array([-1 if each == () else int(each) for each in second], np.int64), names


def _image_of(data: Any, k: int) -> Any:
    return _pair(data[k], k)[0]


def _pair(row: Any, k: int) -> tuple[Any, Any]:
    if isinstance(row, Mapping) and "image" in row:
        return row["image"], next((row[each] for each in TEXTS if each in row), ())
    if isinstance(row, tuple | list) and len(row) == 2:
        return row[0], row[1]
    raise InputError(f"item {k} of the data is {shown(row)}; expected {ACCEPTED}")


def _content(given_image: Callable[[int], Any], count: int) -> Any:
    """Return what identifies images: the names, sizes and times of files, and a hash of the pixels of other images."""
    paths, pixels = [], hashlib.sha256()
    for k in range(count):
        try:
            given = given_image(k)
            if isinstance(given, str | os.PathLike):
                paths.append(str(Path(given).expanduser().absolute()))
                continue
            image = _opened(given, k)
            pixels.update(f"{k} {image.size}\n".encode() + image.tobytes())
        except OSError as error:
            pixels.update(f"{k} {type(error).__name__}\n".encode())
    return [revision(Path("/"), paths), pixels.hexdigest()]
