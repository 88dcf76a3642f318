"""The rows to show, at unit length, and what is known about them: items, labels, captions, thumbnails."""

import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from clip_geometry.data import dataset_from, load_dataset
from clip_geometry.data.base import Dataset, Side
from clip_geometry.embeddings import Embeddings, pair_of
from clip_geometry.io.labels import read_labels
from clip_geometry.io.reading import require_memory
from clip_geometry.progress import Progress
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.matrix import as_rows, in_one_piece, unit_blocks
from clip_geometry.search.mixed_index import MixedIndex, RowNumbers, require_one_space
from clip_geometry.transforms.pipeline import Pipeline

MOST_FIT = 2000  # largest number of items on which repairs are fitted
BLOCK = 4096
ROW = "row of the set"  # metadata column: the number of a row before sampling
EDGE = 96  # length of the longer edge of a thumbnail, in pixels
THUMBNAIL_BYTES = 6_000_000  # size limit of all thumbnails together
CAPTIONS = ("text", "caption", "captions", "prompt", "token")  # columns with the text of a row


@dataclass(frozen=True, eq=False)
class Points:
    """The points of the page, modality after modality.

    Attributes:
        index: The displayed rows after the pipeline, at unit length and in float32, and what is relevant to what.
        fit: Modality → numbers of the rows on which repairs are fitted.
        held_out: (n,) mask of the points on which no repair is fitted, so that numbers can be measured on them.
        given: Modality → number of rows before sampling.
    """

    index: MixedIndex
    fit: Mapping[str, np.ndarray]
    held_out: np.ndarray
    given: Mapping[str, int]

    def __len__(self) -> int:
        return sum(map(len, self.sets.values()))

    @property
    def sets(self) -> Mapping[str, Embeddings]:
        return self.index.sets

    @property
    def rows(self) -> dict[str, np.ndarray]:
        return {name: embeddings.vectors for name, embeddings in self.sets.items()}

    @cached_property
    def starts(self) -> dict[str, int]:
        """Modality → the number of its first point."""
        sizes = [len(embeddings) for embeddings in self.sets.values()]
        return dict(zip(self.sets, np.cumsum([0, *sizes]).tolist(), strict=False))

    @cached_property
    def modality(self) -> np.ndarray:
        """(n,) modality of each point, as its position among the modalities."""
        return np.repeat(np.arange(len(self.sets)), [len(embeddings) for embeddings in self.sets.values()])

    @cached_property
    def keys(self) -> np.ndarray:
        """(n,) keys, equal for points that belong together by item or else by label; −1 for points with neither."""
        if self.keyed_by == "labels":
            return np.concatenate(list(self.index.codes.values()))
        if self.keyed_by is None:
            return np.full(len(self), -1)
        return np.concatenate([np.asarray(group) for group in self.index.groups.values()])

    @property
    def keyed_by(self) -> str | None:
        """What `keys` are: "pairs", "labels" or None."""
        if len(self.sets) < 2:
            return None
        if all(group is not None for group in self.index.groups.values()):
            return "pairs"
        return "labels" if self.index.codes else None

    @cached_property
    def has_partner(self) -> np.ndarray:
        """(n,) mask of the points to which a point of another modality belongs."""
        places = np.unique(np.stack([self.keys, self.modality]), axis=1)  # each key once per modality
        keys, modalities = np.unique(places[0], return_counts=True)
        return np.isin(self.keys, keys[modalities > 1]) & (self.keys >= 0)

    def sample(self, limit: int, seed: int) -> np.ndarray:
        """Return the numbers of at most `limit` points, ascending, whole items where possible."""
        if len(self) <= limit:
            return np.arange(len(self))
        rows = sampled_rows(self.index, limit, seed)
        return np.concatenate([self.starts[name] + numbers for name, numbers in rows.items()])


def sampled_rows(index: MixedIndex, limit: int, seed: int) -> RowNumbers:
    """Return the numbers of about and at most `limit` rows, at least 2 of each modality, whole items where possible."""
    total = sum(map(len, index.sets.values()))
    if total <= limit:
        return index.all_rows
    rows = index.sampled(max(2, limit * len(index.items) // total), seed)
    share = limit / sum(map(len, rows.values()))
    if share >= 1:
        return rows
    generator = np.random.default_rng(seed)
    return {
        name: np.sort(generator.choice(numbers, max(2, int(share * len(numbers))), replace=False))
        for name, numbers in rows.items()
    }


def choose_points(sets: Mapping[str, Embeddings], *, pipeline: str, limit: int, seed: int) -> Points:
    """Choose at most `limit` rows at random, whole items where possible, and prepare them as points.

    Raises:
        InputError: The modalities differ in dimension or have fewer than 2 rows, or a row has no direction.
    """
    require_one_space(sets, "one plane")
    sizes = {name: len(embeddings) for name, embeddings in sets.items()}
    if all(embeddings.item_id is None for embeddings in sets.values()) and len(set(sizes.values())) == 1:
        sets = {name: replace(embeddings, item_id=np.arange(len(embeddings))) for name, embeddings in sets.items()}
    index_of_all = _index(sets)
    chosen = sampled_rows(index_of_all, limit, seed)
    width = next(iter(sets.values())).dim * sum(map(len, chosen.values()))
    require_memory(3 * 8 * width, "the points, with their rows before and after a repair,")
    prepared = {}
    for name, embeddings in index_of_all.sets.items():
        vectors = np.asarray(embeddings.vectors[chosen[name]], dtype=np.float32)
        prepared[name] = embeddings.take(chosen[name], vectors=vectors)
    vectors = {name: embeddings.vectors for name, embeddings in prepared.items()}
    _, transformed = Pipeline(pipeline).fit_transform(vectors, pair_of(prepared))
    for name, rows in transformed.items():
        unit = unit_blocks(as_rows(rows, name=f"the {name} set"), name=f"the {name} set", size=BLOCK)
        vectors = in_one_piece((block.float() for block in unit), len(rows)).numpy()
        metadata = {**prepared[name].metadata, ROW: chosen[name]}
        prepared[name] = replace(prepared[name], vectors=vectors, metadata=metadata)
    index = _index(prepared)
    total = sum(sizes.values())
    split = next(index.splits(1, seed=seed, most_fit=MOST_FIT, most_searched=total, most_queries=1))
    fitted = {name: () if index.groups[name] is None else rows for name, rows in split.fit.items()}
    held_out = np.concatenate([~np.isin(np.arange(len(x.vectors)), fitted[name]) for name, x in index.sets.items()])
    return Points(index, split.fit, held_out, sizes)


def _index(sets: Mapping[str, Embeddings]) -> MixedIndex:
    """Return the sets as an index; labels that the modalities do not share are only used as colors."""
    try:
        return MixedIndex.of(sets)
    except InputError:  # labels that the modalities do not share can still be used as colors
        plain = {name: replace(embeddings, labels=None) for name, embeddings in sets.items()}
        return replace(MixedIndex.of(plain), sets={name: sets[name] for name in sorted(sets)})


def in_blocks(function: Callable[[Any], np.ndarray], rows: Any) -> np.ndarray:
    """Return the results of a function of the rows, applied block by block, in float32."""
    parts = (function(rows[start : start + BLOCK]) for start in range(0, len(rows), BLOCK))
    return in_one_piece((torch.from_numpy(part.astype(np.float32)) for part in parts), len(rows)).numpy()


@dataclass(frozen=True, eq=False)
class Illustrations:
    """Captions and thumbnails.

    Attributes:
        texts: (n,) captions; "" if there is none.
        thumbnails: Point → a WebP file.
        notes: Sentences about what is missing.
    """

    texts: list[str]
    thumbnails: Mapping[int, bytes]
    notes: tuple[str, ...]


def illustrate(
    points: Points, queries: np.ndarray, *, data: Any = None, captions: str | Path | None = None, progress: Progress
) -> Illustrations:
    """Find the captions of the texts and the images of the other rows.

    Args:
        points: The displayed points.
        queries: The points to illustrate first.
        data: A data set, or its name or path; default: the data set of the store that the rows come from.
        captions: A file with one line for each row of the texts.
        progress: Called as in `cg.embed`.

    Raises:
        InputError: The data set or the captions do not match the rows.
    """
    requested = data if isinstance(data, Dataset | None) else load_dataset(data)
    texts: list[str] = []
    images: dict[int, tuple[Side, int]] = {}
    stored: dict[str, Dataset | str | None] = {}
    for name, embeddings in points.sets.items():
        dataset = requested or _of_store(embeddings, stored)
        column = next((embeddings.metadata[key] for key in CAPTIONS if key in embeddings.metadata), None)
        shows_images = name == "image" or (embeddings.language is None and name != "text" and column is None)
        if captions is not None and (name == "text" or ("text" not in points.sets and name != "image")):
            lines = read_labels(captions)
            if len(lines) != points.given[name]:
                given = f"{len(lines)} captions for {points.given[name]} {embeddings.modality} rows"
                raise InputError(f"{shown(Path(captions))} has {given}; expected one caption per row")
            column = np.array([lines[int(row)] for row in embeddings.metadata[ROW]], dtype=object)
        side = None
        if dataset is not None:
            side = dataset.image if shows_images else dataset.text
        places = np.full(len(embeddings), -1) if side is None else _places(embeddings, side)
        if column is not None:
            texts += ["" if value is None else str(value) for value in column.tolist()]
        else:
            texts += ["" if shows_images or k < 0 else str(side.load(k)) for k in places.tolist()]  # pyright: ignore
        if shows_images and side is not None:
            images |= {points.starts[name] + row: (side, k) for row, k in enumerate(places.tolist()) if k >= 0}
    if requested is not None and not images and not any(texts):
        raise InputError("no row belongs to the given data set: neither ids nor the number of rows agree")
    notes = [note for note in stored.values() if isinstance(note, str)]
    thumbnails = _thumbnails(images, queries, progress)
    if len(thumbnails) < len(images):
        notes.append(f"{len(thumbnails):,} of {len(images):,} images have a thumbnail, to keep the file small.")
    return Illustrations(texts, thumbnails, tuple(notes))


def _of_store(embeddings: Embeddings, cache: dict[str, Dataset | str | None]) -> Dataset | None:
    """Return the data set that the manifest names; `cache` keeps it, or a sentence on why it cannot be read."""
    recipe = dict(embeddings.provenance.get("recipe") or {}).get("dataset")
    key = repr(recipe)
    if recipe and key not in cache:
        try:
            cache[key] = load_dataset(dataset_from(recipe))
        except (InputError, OSError) as error:
            name = shown(recipe.get("name"))
            cache[key] = f"There are no images, since the data set {name} of the store could not be read: {error}."
    dataset = cache.get(key)
    return dataset if isinstance(dataset, Dataset) else None


def _places(embeddings: Embeddings, side: Side) -> np.ndarray:
    """Return the item of the data set that each row belongs to, by its id or the stem of a file name; −1 for none.

    If no id matches, decimal ids are taken as item numbers, which is what rows without ids have.
    """
    if embeddings.item_id is None:
        return np.full(len(embeddings), -1)
    ids = np.asarray(side.item_id, dtype=object)
    index = np.asarray(embeddings.metadata.get("index", ()))
    usable = len(index) and index.dtype.kind in "iu" and index.max() < len(ids)
    if usable and (ids[index] == embeddings.item_id).all():
        return index
    items = list(enumerate(side.item_id))[::-1]  # of equal ids, the first one counts
    item_numbers = {Path(item).stem: k for k, item in items} | {item: k for k, item in items}
    places = np.array([item_numbers.get(item, -1) for item in embeddings.item_id])
    if (places < 0).all() and all(isinstance(item, str) and item.isdecimal() for item in embeddings.item_id):
        rows = np.array([int(item) for item in embeddings.item_id])
        return rows if rows.max() < len(ids) else places
    return places


def _thumbnails(images: Mapping[int, tuple[Side, int]], queries: np.ndarray, progress: Progress) -> dict[int, bytes]:
    """Make as many thumbnails as the size limit allows, those of queries first."""
    order = dict.fromkeys((*(point for point in queries.tolist() if point in images), *images))
    thumbnails: dict[int, bytes] = {}
    size = 0
    if not order:
        return {}
    with progress("thumbnails", len(order)) as advance:
        for point in order:
            side, k = images[point]
            with suppress(OSError):  # no thumbnail for missing and damaged files
                image = side.load(k)
                assert isinstance(image, Image.Image)
                small = image.convert("RGB")
                file = io.BytesIO()
                small.thumbnail((EDGE, EDGE))
                small.save(file, "WEBP", quality=72)
                thumbnails[point] = file.getvalue()
                size += len(thumbnails[point])
            advance(1)
            if size > THUMBNAIL_BYTES:
                break
    return thumbnails
