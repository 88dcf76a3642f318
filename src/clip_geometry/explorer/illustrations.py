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
    points: Points,
    queries: np.ndarray,
    *,
    data: Any = None,
    captions: str | Path | None = None,
    images: str | Path | None = None,
    progress: Progress,
) -> Illustrations:
    """Find the captions of the texts and the images of the rest.

    Args:
        points: What is shown.
        queries: The points that are illustrated first.
        data: A data set, or the name or path of one; by default that of the store which the rows are from.
        captions: A file with a line for each row of the texts.
        images: A folder of images, by item id or else in the order of their names.
        progress: As of `cg.embed`.

    Raises:
        InputError: What was given is not what the rows are of.
    """
    notes: list[str] = []
    if data is not None and images is not None:
        raise InputError("a data set and a folder of images were both given; give one of them")
    data = images if data is None else data
    loaded = data if isinstance(data, Dataset | None) else load_dataset(resolve_dataset(data))
    texts: list[str] = []
    pictures: dict[int, tuple[Side, int]] = {}
    stored: dict[str, Dataset | None] = {}
    for name, each in points.sets.items():
        source = loaded or _of_store(each, stored, notes)
        image = _side(source, each, name, "image")
        if captions is not None and (name == "text" or ("text" not in points.sets and name != "image")):
            lines, rows = read_labels(captions), points.given[name]
            if len(lines) != rows:
                raise InputError(
                    f"{shown(Path(captions))} has {len(lines)} captions for {rows} {each.modality} rows; give one each"
                )
            texts += [str(lines[int(row)]) for row in each.metadata[ROW]]
        else:
            texts += _texts(each, _side(source, each, name, "text"))
        if image is not None:
            start = points.starts[name]
            pictures |= {start + row: (image, k) for row, k in enumerate(_places(each, image)) if k >= 0}
    if loaded is not None and not pictures and not any(texts):
        raise InputError("no row is of the data set that was given: neither ids nor the number of rows agree")
    thumbnails = _thumbnails(pictures, queries, progress)
    if pictures and len(thumbnails) < len(pictures):
        notes.append(f"{len(thumbnails):,} of {len(pictures):,} images have a thumbnail, to keep the file small.")
    return Illustrations(texts, thumbnails, tuple(dict.fromkeys(notes)))


def _of_store(each: Embeddings, stored: dict[str, Dataset | None], notes: list[str]) -> Dataset | None:
    """The data set that the manifest names, where it can be read on this machine."""
    recipe = dict(each.provenance.get("recipe") or {}).get("dataset")
    if not recipe:
        return None
    key = repr(recipe)
    if key not in stored:
        stored[key] = None
        try:
            stored[key] = load_dataset(dataset_from(recipe))
        except (InputError, OSError) as error:
            name = shown(recipe.get("name"))
            notes.append(f"There are no images, since the data set {name} of the store could not be read: {error}.")
    return stored[key]


def _side(source: Dataset | None, each: Embeddings, name: str, kind: str) -> Side | None:
    """The side of the data set that these rows are of: by their name, and texts whatever their language."""
    side = None if source is None else getattr(source, kind)
    if side is None:
        return None
    images = name == "image" or (each.language is None and name != "text" and not _captions(each))
    return side if images == (kind == "image") else None


def _places(each: Embeddings, side: Side) -> np.ndarray:
    """The item of the data set that each row is of; −1 for none."""
    index = each.metadata.get("index")
    ids = np.asarray(side.item_id, dtype=object)
    if index is not None and each.item_id is not None:
        index = np.asarray(index)
        if index.dtype.kind in "iu" and (index < len(ids)).all() and (ids[index] == each.item_id).all():
            return index
    if each.item_id is None:
        return np.full(len(each), -1)
    known = {item: k for k, item in reversed(list(enumerate(side.item_id)))}
    by_stem = {Path(item).stem: k for item, k in known.items()}
    places = np.array([known.get(item, by_stem.get(item, -1)) for item in each.item_id])
    if (places < 0).all() and all(isinstance(item, str) and item.isdecimal() for item in each.item_id):
        rows = np.array([int(item) for item in each.item_id])  # rows without ids are numbered
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


def _thumbnails(pictures: Mapping[int, tuple[Side, int]], queries: np.ndarray, progress: Progress) -> dict[int, bytes]:
    """As many as the budget allows, those of queries first."""
    order = dict.fromkeys((*(point for point in queries.tolist() if point in pictures), *pictures))
    found, size = {}, 0
    if not order:
        return {}
    with progress("thumbnails", len(order)) as advance:
        for point in order:
            side, k = pictures[point]
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
