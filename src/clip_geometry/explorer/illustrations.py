"""What a point looks like: its caption or, for a sample of images, a thumbnail; from the store, a data set or files."""

import io
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from clip_geometry.data import dataset_from, load_dataset, resolve_dataset
from clip_geometry.data.base import Dataset, Side
from clip_geometry.embeddings import Embeddings
from clip_geometry.explorer.points import ROW, Points
from clip_geometry.io.labels import read_labels
from clip_geometry.progress import Progress
from clip_geometry.registry import InputError, shown

EDGE = 96  # pixels of the longer edge of a thumbnail
THUMBNAIL_BYTES = 6_000_000  # of all thumbnails
CAPTIONS = ("text", "caption", "captions", "prompt", "token")  # columns that hold what a row is the embedding of


@dataclass(frozen=True, eq=False)
class Illustrations:
    """Captions and thumbnails.

    Attributes:
        texts: (n,) captions, "" for none.
        thumbnails: Point → a WebP file.
        notes: What is missing, in sentences.
    """

    texts: list[str]
    thumbnails: Mapping[int, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def illustrate(
    points: Points, queries: np.ndarray, *, data: Any = None, captions: str | Path | None = None, progress: Progress
) -> Illustrations:
    """Find the captions of the texts and the images of the rest.

    Args:
        points: What is shown.
        queries: The points that are illustrated first.
        data: A data set, or the name or path of one; by default that of the store which the rows are from.
        captions: A file with a line for each row of the texts.
        progress: As of `cg.embed`.

    Raises:
        InputError: What was given is not what the rows are of.
    """
    loaded = data if isinstance(data, Dataset | None) else load_dataset(resolve_dataset(data))
    notes: list[str] = []
    texts: list[str] = []
    images: dict[int, tuple[Side, int]] = {}
    stored: dict[str, Dataset | None] = {}
    for name, each in points.sets.items():
        source = loaded or _of_store(each, stored, notes)
        shows_images = name == "image" or (each.language is None and name != "text" and _captions(each) is None)
        image, text = (source.image, source.text) if source is not None else (None, None)
        if captions is not None and (name == "text" or ("text" not in points.sets and name != "image")):
            lines, rows = read_labels(captions), points.given[name]
            if len(lines) != rows:
                raise InputError(
                    f"{shown(Path(captions))} has {len(lines)} captions for {rows} {each.modality} rows; give one each"
                )
            texts += [str(lines[int(row)]) for row in each.metadata[ROW]]
        else:
            texts += _texts(each, None if shows_images else text)
        if image is not None and shows_images:
            start = points.starts[name]
            images |= {start + row: (image, k) for row, k in enumerate(_places(each, image).tolist()) if k >= 0}
    if loaded is not None and not images and not any(texts):
        raise InputError("no row is of the data set that was given: neither ids nor the number of rows agree")
    thumbnails = _thumbnails(images, queries, progress)
    if len(thumbnails) < len(images):
        notes.append(f"{len(thumbnails):,} of {len(images):,} images have a thumbnail, to keep the file small.")
    return Illustrations(texts, thumbnails, tuple(dict.fromkeys(notes)))


def _of_store(each: Embeddings, stored: dict[str, Dataset | None], notes: list[str]) -> Dataset | None:
    """The data set that the manifest names, where it can be read on this machine."""
    recipe = dict(each.provenance.get("recipe") or {}).get("dataset")
    key = repr(recipe)
    if recipe and key not in stored:
        try:
            stored[key] = load_dataset(dataset_from(recipe))
        except (InputError, OSError) as error:
            stored[key], name = None, shown(recipe.get("name"))
            notes.append(f"There are no images, since the data set {name} of the store could not be read: {error}.")
    return stored.get(key)


def _places(each: Embeddings, side: Side) -> np.ndarray:
    """The item of the data set that each row is of, by its id or the stem of a file name; −1 for none.

    Where no id agrees, decimal ids are numbers of items, as those of rows without ids are.
    """
    if each.item_id is None:
        return np.full(len(each), -1)
    ids, index = np.asarray(side.item_id, dtype=object), np.asarray(each.metadata.get("index", ()))
    if len(index) and index.dtype.kind in "iu" and index.max() < len(ids) and (ids[index] == each.item_id).all():
        return index
    items = list(enumerate(side.item_id))[::-1]  # of equal ones, the first counts
    known = {Path(item).stem: k for k, item in items} | {item: k for k, item in items}
    places = np.array([known.get(item, -1) for item in each.item_id])
    if (places < 0).all() and all(isinstance(item, str) and item.isdecimal() for item in each.item_id):
        rows = np.array([int(item) for item in each.item_id])
        return rows if rows.max() < len(ids) else places
    return places


def _captions(each: Embeddings) -> np.ndarray | None:
    return next((each.metadata[name] for name in CAPTIONS if name in each.metadata), None)


def _texts(each: Embeddings, side: Side | None) -> list[str]:
    column = _captions(each)
    if column is not None:
        return ["" if value is None else str(value) for value in column.tolist()]
    if side is None:
        return [""] * len(each)
    return [str(side.load(k)) if k >= 0 else "" for k in _places(each, side).tolist()]


def _thumbnails(images: Mapping[int, tuple[Side, int]], queries: np.ndarray, progress: Progress) -> dict[int, bytes]:
    """As many as the budget allows, those of queries first."""
    order = dict.fromkeys((*(point for point in queries.tolist() if point in images), *images))
    found, size = {}, 0
    if not order:
        return {}
    with progress("thumbnails", len(order)) as advance:
        for point in order:
            side, k = images[point]
            with suppress(OSError):  # a file that is missing or damaged has no thumbnail
                image = side.load(k)
                assert isinstance(image, Image.Image)
                small, file = image.convert("RGB"), io.BytesIO()
                small.thumbnail((EDGE, EDGE))
                small.save(file, "WEBP", quality=72)
                found[point] = file.getvalue()
                size += len(found[point])
            advance(1)
            if size > THUMBNAIL_BYTES:
                break
    return found
