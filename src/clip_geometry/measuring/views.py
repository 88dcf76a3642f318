"""Embeddings after a pipeline, in the shapes that measures take: rows, labeled rows, pairs, …"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings, pair
from clip_geometry.geometry import Measure
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.registry import InputError
from clip_geometry.transforms import Prepared, Step, prepare
from clip_geometry.transforms.pipeline import taken

Rows = Mapping[str, np.ndarray | StreamedRows]


class View:
    """rows: modality → the rows of `embeddings`, moved or as they are."""

    def __init__(self, embeddings: Mapping[str, Embeddings], rows: Rows):
        self.embeddings = dict(embeddings)
        self.rows = rows

    @classmethod
    def through(
        cls,
        steps: Sequence[Step],
        embeddings: Mapping[str, Embeddings],
        *,
        origin: str = "these rows",
        rows: Rows | None = None,
    ) -> tuple["View", Prepared]:
        """The rows after a pipeline that is fitted on them, and what came of fitting it.

        rows: what is to be taken for those of the embeddings, StreamedRows of them.
        """
        raw = cls(embeddings, rows or {modality: each.vectors for modality, each in embeddings.items()})
        prepared = prepare(steps, raw.rows, lambda: raw.pairs, origin=origin)
        return cls(embeddings, prepared.sets), prepared

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Row indices (i, j) of all matching pairs; InputError where there are none."""
        return pair(self.embeddings["image"], self.embeddings["text"])

    @cached_property
    def distinct_pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """One pair of rows for each item."""
        return pair(self.embeddings["image"], self.embeddings["text"], distinct=True)

    def arguments(self, measure: Measure, place: str) -> tuple:
        """What the measure takes, in one of its places: a modality or "both"."""
        return TAKES[measure.takes](self, measure, place)


def _pairs(view: View, measure: Measure, place: str) -> tuple:
    try:
        i, j = view.distinct_pairs if measure.takes == "distinct pairs" else view.pairs
    except InputError as error:
        raise InputError(f"{measure.name} needs pairs: {error}") from None
    return taken(view.rows["image"], i), taken(view.rows["text"], j)


def _matched_sets(view: View, measure: Measure, place: str) -> tuple:
    """The rows that have a pair: aligned where each has one, else the rows of either side and their pairs (2, p)."""
    image, text = _pairs(view, measure, place)
    (images, i), (texts, j) = (np.unique(rows, return_inverse=True) for rows in view.pairs)
    if len(images) == len(texts) == len(i):
        return image, text
    return taken(view.rows["image"], images), taken(view.rows["text"], texts), np.stack((i, j))


def _classes(view: View, measure: Measure, place: str) -> tuple:
    """Images, the class of each, and a row of text per class."""
    image, text = view.embeddings["image"], view.embeddings["text"]
    if image.labels is None:
        raise InputError(f"{measure.name} needs labels of the images")
    if text.labels is None:
        raise InputError(
            f"{measure.name} needs a label for every text, its class: a column 'label' beside the embeddings "
            "(.parquet, .npz 'labels'), or a store embedded with a prompt"
        )
    classes, of_text = np.unique(np.asarray(text.labels), return_inverse=True)
    if len(classes) < len(text):  # a caption is no class prompt
        raise InputError(
            f"{measure.name} needs one text per class, but {len(text)} texts have {len(classes)} labels; captions are "
            "no class prompts: embed the images' classes with a prompt"
        )
    of_image = np.searchsorted(classes, np.asarray(image.labels)).clip(max=len(classes) - 1)
    if not np.array_equal(classes[of_image], np.asarray(image.labels)):
        raise InputError(f"{measure.name} needs a prompt for every class; some images have a label without one")
    return view.rows["image"], of_image, view.rows["text"][np.argsort(of_text)]


TAKES: dict[str, Callable[[View, Measure, str], tuple[Any, ...]]] = {
    "rows": lambda view, measure, place: (view.rows[place],),
    "labeled rows": lambda view, measure, place: (view.rows[place], np.asarray(view.embeddings[place].labels)),
    "two sets": lambda view, measure, place: (view.rows["image"], view.rows["text"]),
    "pairs": _pairs,
    "distinct pairs": _pairs,
    "matched sets": _matched_sets,
    "classes": _classes,
}
