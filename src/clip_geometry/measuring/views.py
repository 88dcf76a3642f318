"""Embeddings after a pipeline, in the shapes that measures take: rows, labeled rows, pairs, …"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from clip_geometry.embeddings import Embeddings, in_order, pair
from clip_geometry.geometry import Measure
from clip_geometry.measuring.items import is_prompts
from clip_geometry.modalities import plural
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.relevance import Relevance
from clip_geometry.transforms import Pipeline, Step
from clip_geometry.transforms.pipeline import taken

Rows: TypeAlias = Mapping[str, np.ndarray | StreamedRows]
Pairs: TypeAlias = tuple[np.ndarray, np.ndarray]


class View:
    """Embeddings whose rows went through a pipeline.

    Args:
        embeddings: As they were before it; they have the ids and labels.
        rows: Modality → the rows after it.
        fitted: The pipeline as it was fitted on these rows, or None.
    """

    def __init__(self, embeddings: Mapping[str, Embeddings], rows: Rows, fitted: Pipeline | None = None):
        self.embeddings = dict(embeddings)
        self.rows, self.fitted = rows, fitted
        self._pairs: dict[tuple[str, str, bool], Pairs] = {}

    @classmethod
    def through(
        cls,
        steps: Sequence[Step],
        embeddings: Mapping[str, Embeddings],
        *,
        origin: str = "these rows",
        rows: Rows | None = None,
    ) -> "View":
        """The rows after a pipeline that is fitted on them. rows: `StreamedRows` of the embeddings, to be read instead
        of their vectors."""
        raw = cls(embeddings, rows or {modality: each.vectors for modality, each in embeddings.items()})
        fitted, transformed = Pipeline(steps).fit_transform(raw.rows, raw.pairs, origin=origin)
        return cls(embeddings, transformed, fitted)

    @cached_property
    def couples(self) -> dict[str, tuple[str, str]]:
        """Where measures across modalities are taken: "both" of two sets, "audio+image" and so on of more.

        The order within a couple is that of `in_order`, whatever the order of the sets.
        """
        order = in_order(self.embeddings)
        found = [
            (one, other) if order.index(one) < order.index(other) else (other, one)
            for one, other in combinations(self.embeddings, 2)
        ]
        return {"both" if len(found) == 1 else "+".join(couple): couple for couple in found}

    def pairs(self, first: str, second: str, *, distinct: bool = False) -> Pairs:
        """Row indices (i, j) of all matching pairs of two sets, or of one for each item; InputError without any."""
        key = first, second, distinct
        if key not in self._pairs:
            self._pairs[key] = pair(self.embeddings[first], self.embeddings[second], distinct=distinct)
        return self._pairs[key]

    def places(self, measure: Measure) -> list[str]:
        """Where the measure can be taken: some of the modalities, "both" of two, or couples such as "audio+image".

        Raises InputError where nowhere.
        """
        if measure.takes not in ARGUMENTS:
            call = f"clip_geometry.{measure.function.__name__}"
            raise InputError(f"{measure.name} needs {measure.needs[0]}, which this command does not have; call {call}")
        if not measure.inputs.across and measure.takes != "labeled rows":
            return list(self.rows)
        if measure.inputs.across:
            if len(self.rows) < 2:
                raise InputError(f"{measure.name} needs two modalities, only {next(iter(self.rows))} was given")
            if self.fitted and self.fitted.refusal:
                raise InputError(f"{measure.name} compares the modalities, but {self.fitted.refusal}")
            dims = {modality: rows.shape[1] for modality, rows in self.rows.items()}
            couples = self.couples.items()
            places = [place for place, (one, two) in couples if not measure.one_space or dims[one] == dims[two]]
            if not places:
                given = " and ".join(f"{modality} has dimension {dim}" for modality, dim in dims.items())
                raise InputError(f"{measure.name} needs one space, but {given}")
            return places
        # a class prompt stands for its class: alone in it, it has no silhouette
        labeled = [name for name, e in self.embeddings.items() if e.labels is not None and not is_prompts(e)]
        if not labeled:
            raise InputError(f"{measure.name} needs labels; give one per row (labels, --labels FILE)")
        return labeled

    def arguments(self, measure: Measure, place: str) -> tuple:
        """What the measure takes, in one of its places: a modality, or a couple of them."""
        return ARGUMENTS[measure.takes](self, measure, place)


def _pairs(view: View, measure: Measure, place: str) -> tuple:
    first, second = view.couples[place]
    i, j = _indices(view, measure, first, second, distinct=measure.takes == "distinct pairs")
    return taken(view.rows[first], i), taken(view.rows[second], j)


def _indices(view: View, measure: Measure, first: str, second: str, *, distinct: bool = False) -> Pairs:
    try:
        return view.pairs(first, second, distinct=distinct)
    except InputError as error:
        raise InputError(f"{measure.name} needs pairs: {error}") from None


def _matched_sets(view: View, measure: Measure, place: str) -> tuple:
    """The rows that have a pair: aligned where each has one, else the rows of either side and their pairs (2, p)."""
    first, second = view.couples[place]
    pairs = _indices(view, measure, first, second)
    (ones, i), (others, j) = (np.unique(rows, return_inverse=True) for rows in pairs)
    if len(ones) == len(others) == len(i):
        return taken(view.rows[first], pairs[0]), taken(view.rows[second], pairs[1])
    return taken(view.rows[first], ones), taken(view.rows[second], others), np.stack((i, j))


def _relevant_sets(view: View, measure: Measure, place: str) -> tuple:
    """All rows of both sets, and what is relevant: equal labels where both have some, else the pairs."""
    first, second = view.couples[place]
    one, other = view.embeddings[first], view.embeddings[second]
    if one.labels is not None and other.labels is not None:
        relevance = Relevance.of_labels(image=one.labels, text=other.labels)
    else:
        pairs = _indices(view, measure, first, second)
        relevance = Relevance.of_pairs(pairs, image=len(one), text=len(other))
    return view.rows[first], view.rows[second], relevance


def _classes(view: View, measure: Measure, place: str) -> tuple:
    """Rows, the class of each, and a class text per class."""
    first, second = view.couples[place]
    rows, text = view.embeddings[first], view.embeddings[second]
    if rows.labels is None:
        raise InputError(f"{measure.name} needs labels of the {plural(first)}")
    if text.labels is None:
        raise InputError(
            f"{measure.name} needs a label for every text, its class: a column 'label' beside the embeddings "
            "(.parquet, .npz 'labels'), or a store embedded with a prompt"
        )
    classes, of_text = np.unique(np.asarray(text.labels), return_inverse=True)
    if len(classes) < len(text):  # a caption is no class prompt
        raise InputError(
            f"{measure.name} needs one text per class, but {len(text)} texts have {len(classes)} labels; captions are "
            f"no class prompts: embed the {plural(first)}' classes with a prompt"
        )
    of_row = np.searchsorted(classes, np.asarray(rows.labels)).clip(max=len(classes) - 1)
    if not np.array_equal(classes[of_row], np.asarray(rows.labels)):
        raise InputError(
            f"{measure.name} needs a prompt for every class; some {plural(first)} have a label without one"
        )
    return view.rows[first], of_row, view.rows[second][np.argsort(of_text)]


ARGUMENTS: dict[str, Callable[[View, Measure, str], tuple[Any, ...]]] = {
    "rows": lambda view, measure, place: (view.rows[place],),
    "labeled rows": lambda view, measure, place: (view.rows[place], np.asarray(view.embeddings[place].labels)),
    "two sets": lambda view, measure, place: tuple(view.rows[name] for name in view.couples[place]),
    "pairs": _pairs,
    "distinct pairs": _pairs,
    "matched sets": _matched_sets,
    "relevant sets": _relevant_sets,
    "classes": _classes,
}
