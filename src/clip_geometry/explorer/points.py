"""Which rows are shown, as unit rows, with what is known of them: items, labels, captions, thumbnails."""

import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from clip_geometry.data import dataset_from, load_dataset, resolve_dataset
from clip_geometry.data.base import Dataset, Side
from clip_geometry.embeddings import Embeddings, pair_of
from clip_geometry.io.labels import read_labels
from clip_geometry.io.reading import require_memory
from clip_geometry.modalities import plural
from clip_geometry.progress import Progress
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.matrix import in_one_piece
from clip_geometry.search.mixed_index import MixedIndex, RowNumbers, logit_scale_of, require_one_space
from clip_geometry.transforms import Normalize, Pipeline

MOST_FIT = 2000  # items that repairs are fitted on
BLOCK = 4096
ROW = "row of the set"  # a column of the metadata: the number that a shown row had before sampling


@dataclass(frozen=True, eq=False)
class Points:
    """The points of the page, those of one modality after those of another.

    Attributes:
        index: The shown rows after the pipeline, at unit length, in float32, and what is relevant to what.
        fit: Modality → numbers of the rows that repairs are fitted on.
        held_out: (n,) mask of the points that no repair is fitted on, so that numbers can be read off them.
        given: Modality → number of rows before sampling.
        notes: What was left out, in sentences.
    """

    index: MixedIndex
    fit: Mapping[str, np.ndarray]
    held_out: np.ndarray
    given: Mapping[str, int]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return sum(map(len, self.sets.values()))

    @property
    def sets(self) -> Mapping[str, Embeddings]:
        return self.index.sets

    @property
    def rows(self) -> dict[str, np.ndarray]:
        return {name: each.vectors for name, each in self.sets.items()}

    @cached_property
    def starts(self) -> dict[str, int]:
        """Modality → the number of its first point."""
        sizes = [len(each) for each in self.sets.values()]
        return dict(zip(self.sets, np.cumsum([0, *sizes]).tolist(), strict=False))

    @cached_property
    def modality(self) -> np.ndarray:
        """(n,) the modality of each point, as its place among the modalities."""
        return np.repeat(np.arange(len(self.sets)), [len(each) for each in self.sets.values()])

    @cached_property
    def keys(self) -> np.ndarray:
        """(n,) equal for points that belong together, of one item or else of one label; −1 for those of none."""
        groups = [group for group in self.index.groups.values() if group is not None]
        if len(groups) == len(self.sets):
            return np.concatenate(groups)
        return np.concatenate(list(self.index.codes.values())) if self.index.codes else np.full(len(self), -1)

    @property
    def keyed_by(self) -> str | None:
        """What `keys` are: "pairs", "labels" or None."""
        if len(self.sets) < 2 or not (self.keys >= 0).any():
            return None
        return "labels" if any(group is None for group in self.index.groups.values()) else "pairs"

    @cached_property
    def has_partner(self) -> np.ndarray:
        """(n,) mask of the points that a point of another modality belongs to."""
        found = np.zeros(len(self), dtype=bool)
        for place in range(len(self.sets)):
            own = self.modality == place
            found[own] = np.isin(self.keys[own], self.keys[~own])
        return found & (self.keys >= 0)

    def sample(self, most: int, seed: int) -> np.ndarray:
        """Numbers of at most `most` points, ascending, whole items where possible."""
        if len(self) <= most:
            return np.arange(len(self))
        rows = sampled_rows(self.index, most, seed)
        return np.concatenate([self.starts[name] + numbers for name, numbers in rows.items()])


def sampled_rows(index: MixedIndex, most: int, seed: int) -> RowNumbers:
    """Numbers of about `most` rows and no more, at least 2 of each modality, whole items where possible."""
    total = sum(map(len, index.sets.values()))
    if total <= most:
        return index.all_rows
    rows = index.sampled(max(2, most * len(index.items) // total), seed)
    share, generator = most / sum(map(len, rows.values())), np.random.default_rng(seed)
    if share >= 1:
        return rows
    return {
        name: np.sort(generator.choice(numbers, max(2, int(share * len(numbers))), replace=False))
        for name, numbers in rows.items()
    }


def choose_points(sets: Mapping[str, Embeddings], *, pipeline: str, limit: int, seed: int) -> Points:
    """Choose at most `limit` rows at random, whole items where possible, without rows that have no direction.

    Raises:
        InputError: Modalities differ in their dimension, or have fewer than 2 rows with a direction.
    """
    require_one_space(sets, "one plane")
    if all(each.item_id is None for each in sets.values()) and len({len(each) for each in sets.values()}) == 1:
        sets = {name: replace(each, item_id=np.arange(len(each))) for name, each in sets.items()}
    whole, notes = _index(sets), []
    rows, total = sampled_rows(whole, limit, seed), sum(map(len, sets.values()))
    dim = next(iter(sets.values())).dim
    require_memory(3 * 8 * dim * sum(map(len, rows.values())), "the points, with their rows before and after a repair,")
    numbers, shown = {}, {}
    for name, chosen in rows.items():
        vectors = np.asarray(sets[name].vectors[chosen], dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            fine = np.isfinite(vectors).all(1) & (np.abs(vectors).max(1) > 0)
        numbers[name] = chosen[fine]
        if not fine.all():
            lost = len(chosen) - len(numbers[name])
            notes.append(f"{lost:,} {plural(name)} have zeros only, NaN or infinity, and are left out.")
        if len(numbers[name]) < 2:
            raise InputError(f"fewer than 2 of the {name} rows have a direction; nothing can be shown")
        kept = whole.sets[name].take(numbers[name], vectors=vectors[fine])
        shown[name] = replace(kept, metadata={**kept.metadata, ROW: numbers[name]})
    if total > limit:
        sizes = (f"{len(chosen):,} of {len(sets[name]):,} {plural(name)}" for name, chosen in numbers.items())
        notes.insert(0, f"A random sample is shown, {' and '.join(sizes)} (seed {seed}).")
    prepared = {name: each.vectors for name, each in shown.items()}
    prepared = Pipeline(pipeline).fit_transform(prepared, pair_of(shown))[1]
    unit = {name: in_blocks(lambda rows: Normalize().apply(np.asarray(rows)), x) for name, x in prepared.items()}
    index = MixedIndex(
        {name: replace(each, vectors=unit[name]) for name, each in shown.items()},
        whole.by,
        {name: None if group is None else group[numbers[name]] for name, group in whole.groups.items()},
        {name: codes[numbers[name]] for name, codes in whole.codes.items()},
        whole.logit_scale,
    )
    split = next(index.splits(1, seed=seed, most_fit=MOST_FIT, most_searched=total, most_queries=1))
    fitted = {name: () if index.groups[name] is None else rows for name, rows in split.fit.items()}
    held_out = np.concatenate([~np.isin(np.arange(len(each)), fitted[name]) for name, each in index.sets.items()])
    return Points(index, split.fit, held_out, {name: len(each) for name, each in whole.sets.items()}, tuple(notes))


def _index(sets: Mapping[str, Embeddings]) -> MixedIndex:
    scale = logit_scale_of(sets)
    try:
        return MixedIndex.of(sets, logit_scale=scale)
    except InputError:  # labels that the modalities do not share are still colors
        plain = {name: replace(each, labels=None) for name, each in sets.items()}
        return replace(MixedIndex.of(plain, logit_scale=scale), sets={name: sets[name] for name in sorted(sets)})


def in_blocks(function: Callable[[Any], np.ndarray], rows: Any) -> np.ndarray:
    """What a function of the rows gives for some of them at a time, in float32."""
    parts = (function(rows[start : start + BLOCK]) for start in range(0, len(rows), BLOCK))
    return in_one_piece((torch.from_numpy(part.astype(np.float32)) for part in parts), len(rows)).numpy()


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
