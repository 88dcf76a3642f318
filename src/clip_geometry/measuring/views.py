"""Embeddings after a pipeline: their items and origin, and their rows in the shapes that measures take."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from clip_geometry.config import digest
from clip_geometry.embeddings import Embeddings, in_order, pair
from clip_geometry.geometry import Measure
from clip_geometry.geometry.uncertainty import deal
from clip_geometry.io.sources import Sets
from clip_geometry.modalities import plural
from clip_geometry.registry import InputError, library_versions
from clip_geometry.results import Row
from clip_geometry.rows.matrix import unit_array
from clip_geometry.rows.streamed import StreamedRows, taken
from clip_geometry.steps import NORMALIZE, Step

if TYPE_CHECKING:
    from clip_geometry.transforms.pipeline import Pipeline

Rows: TypeAlias = Mapping[str, np.ndarray | StreamedRows]
Pairs: TypeAlias = tuple[np.ndarray, np.ndarray]


class View:
    """Embeddings whose rows went through a pipeline.

    Args:
        embeddings: As they were before it; they have the ids and labels.
        rows: Modality → the rows. Default: the vectors as they are.
        steps: The pipeline that is fitted on these rows and applied to them; None if they went through it before.
    """

    def __init__(self, embeddings: Sets, rows: Rows | None = None, steps: Sequence[Step] | None = None):
        self.embeddings = dict(embeddings)
        self.rows: Mapping[str, Any] = rows or {modality: each.vectors for modality, each in embeddings.items()}
        self.fitted: Pipeline | None = None
        self._pairs: dict[tuple[str, str, bool], Pairs] = {}
        if steps and all(step.name == NORMALIZE for step in steps):
            # without the second that importing the transforms takes, which are estimators of scikit-learn
            self.rows = {modality: unit_array(rows) for modality, rows in self.rows.items()}
        elif steps:
            pipelines = import_module("clip_geometry.transforms.pipeline")
            origin = origin_of(embeddings)
            self.fitted, self.rows = pipelines.Pipeline(steps).fit_transform(self.rows, self.pairs_of, origin=origin)

    @cached_property
    def couples(self) -> dict[str, tuple[str, str]]:
        """Where measures across modalities are taken: "both" of two sets, "audio+image" and so on of more.

        The order within a couple is that of `in_order`, whatever the order of the sets.
        """
        order = in_order(self.embeddings)
        found = {}
        for couple in combinations(self.embeddings, 2):
            one, other = sorted(couple, key=order.index)
            found["both" if len(order) == 2 else f"{one}+{other}"] = one, other
        return found

    def pairs_of(self, first: str, second: str, *, distinct: bool = False) -> Pairs:
        """Row indices (i, j) of all matching pairs of two sets, or of one for each item; InputError without any."""
        key = first, second, distinct
        if key not in self._pairs:
            self._pairs[key] = pair(self.embeddings[first], self.embeddings[second], distinct=distinct)
        return self._pairs[key]

    def places(self, measure: Measure) -> list[str]:
        """Where the measure can be taken: some of the modalities, "both" of two, or couples such as "audio+image".

        Raises InputError where nowhere.
        """
        if measure.takes == "train and test":
            call = f"clip_geometry.{measure.function.__name__}"
            raise InputError(f"{measure.name} needs {measure.needs[0]}, which this command does not have; call {call}")
        if measure.takes == "rows":
            return list(self.rows)
        if measure.takes == "labeled rows":
            # a class prompt stands for its class: alone in it, it has no silhouette
            labeled = [name for name, e in self.embeddings.items() if e.labels is not None and not is_prompts(e)]
            if not labeled:
                raise InputError(f"{measure.name} needs labels; give one per row (labels, --labels FILE)")
            return labeled
        if len(self.rows) < 2:
            raise InputError(f"{measure.name} needs two modalities, only {next(iter(self.rows))} was given")
        if self.fitted and self.fitted.refusal:
            raise InputError(f"{measure.name} compares the modalities, but {self.fitted.refusal}")
        places = []
        for place, (one, other) in self.couples.items():
            if not measure.one_space or self.rows[one].shape[1] == self.rows[other].shape[1]:
                places.append(place)
        if not places:
            given = " and ".join(f"{modality} has dimension {rows.shape[1]}" for modality, rows in self.rows.items())
            raise InputError(f"{measure.name} needs one space, but {given}")
        return places

    def arguments(self, measure: Measure, place: str) -> tuple[Any, ...]:
        """What the measure takes, in one of its places: a modality, or a couple of them."""
        if measure.takes == "rows":
            return (self.rows[place],)
        if measure.takes == "labeled rows":
            return self.rows[place], np.asarray(self.embeddings[place].labels)
        first, second = self.couples[place]
        x, y = self.rows[first], self.rows[second]
        if measure.takes == "two sets":
            return x, y
        if measure.takes == "classes":
            of_row, of_text = self._classes(measure, first, second)
            return x, of_row, y[of_text]
        try:
            i, j = self.pairs_of(first, second, distinct=measure.takes == "distinct pairs")
        except InputError as error:
            raise InputError(f"{measure.name} needs pairs: {error}") from None
        if measure.takes == "matched sets":
            ones, of_one = np.unique(i, return_inverse=True)
            others, of_other = np.unique(j, return_inverse=True)
            if not len(ones) == len(others) == len(i):  # rows have several pairs
                return taken(x, ones), taken(y, others), np.stack((of_one, of_other))
        return taken(x, i), taken(y, j)

    def _classes(self, measure: Measure, first: str, second: str) -> Pairs:
        """The class of each row of the first set, and the row of the second that is the text of each class."""
        given, texts = self.embeddings[first].labels, self.embeddings[second].labels
        if given is None:
            raise InputError(f"{measure.name} needs labels of the {plural(first)}")
        if texts is None:
            raise InputError(
                f"{measure.name} needs a label for every text, its class: a column 'label' beside the embeddings "
                "(.parquet, .npz 'labels'), or a store embedded with a prompt"
            )
        labels, classes = np.asarray(given), np.unique(np.asarray(texts))
        if len(classes) < len(texts):  # a caption is no class prompt
            raise InputError(
                f"{measure.name} needs one text per class, but {len(texts)} texts have {len(classes)} labels; captions "
                f"are no class prompts: embed the {plural(first)}' classes with a prompt"
            )
        of_row = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
        if not np.array_equal(classes[of_row], labels):
            raise InputError(
                f"{measure.name} needs a prompt for every class; some {plural(first)} have a label without one"
            )
        return of_row, np.argsort(np.asarray(texts))


class Items:
    """The items of several sets: an image and all its captions are one item, and lie in one block of the jackknife.

    Class prompts are not a sample. They belong to no item, and stay where a block is left out.

    Args:
        sets: Modality → `Embeddings`. Rows without ids are items by position.
        blocks: Number of blocks that the items are dealt into.
        seed: Seed of the dealing.
    """

    def __init__(self, sets: Sets, *, blocks: int, seed: int):
        self.sets = dict(sorted(sets.items()))  # the order in which sets are given changes no number
        self.blocks, self.seed = blocks, seed
        self._samples = [each for each in self.sets.values() if not is_prompts(each)]
        self._by_position = all(each.item_id is None for each in self._samples)
        self._numbers: dict[Any, int] = {}  # of items with an id, filled by `of_rows`

    @cached_property
    def of_rows(self) -> dict[str, np.ndarray]:
        """The number of the item of each row, from 0; -1 of class prompts."""
        found: dict[str, np.ndarray] = {}
        numbers: dict[Any, int] = {}
        for name, own in self.sets.items():
            if is_prompts(own):
                found[name] = np.full(len(own), -1)
            elif self._by_position:
                found[name] = np.arange(len(own))
            else:  # the ids of the rows; without ids those of the rows that it pairs with, by position
                alike = (each.item_id for each in (own, *self._samples) if len(each) == len(own))
                ids = next((ids for ids in alike if ids is not None), None)
                keys = range(len(own)) if ids is None else ids.tolist()
                found[name] = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
        self._numbers = numbers
        return found

    def __len__(self) -> int:
        if self._by_position:
            return max(map(len, self._samples), default=0)
        _ = self.of_rows  # which numbers the items
        return len(self._numbers)

    @property
    def can_be_dealt(self) -> bool:
        """Whether there are blocks, and an item for each."""
        return 2 <= self.blocks <= len(self)

    @cached_property
    def block_of(self) -> dict[str, np.ndarray]:
        """The block of each row; -1 of class prompts."""
        dealt, found = deal(len(self), self.blocks, self.seed).numpy(), {}
        for name, items in self.of_rows.items():
            found[name] = np.where(items < 0, -1, dealt[items])
        return found

    @cached_property
    def identity(self) -> dict[str, str]:
        """What pairs the errors of two records: `item_blocks`, equal for the same items in the same blocks; and
        `items_from`, "ids" or a digest of the first and last rows, since equal rows are surely the same items."""
        items: Any = f"{len(self)} rows"
        items_from = "ids"
        if self._by_position:
            rows = hashlib.blake2b(digest_size=16)
            for each in self.sets.values():
                for part in (each.vectors[:4096], each.vectors[-4096:]):
                    rows.update(np.ascontiguousarray(part).tobytes())
            items_from = rows.hexdigest()
        else:
            items = list(map(str, self._numbers))
        return {"item_blocks": digest([items, self.blocks, self.seed]), "items_from": items_from}


def is_prompts(embeddings: Embeddings) -> bool:
    """Whether the rows are class prompts."""
    return embeddings.pair_on == "label"


def context(
    sets: Sets,
    *,
    seed: int,
    steps: Sequence[Step | str] = (),
    fitted_on: str | None = None,
    blocks: int = 0,
) -> Row:
    """What every row of these sets has in common: where the numbers come from and how they were made.

    sets: as they were before `steps`. blocks: of the jackknife, 0 for none.
    """
    dtypes = {}
    for each in sets.values():
        dtypes[str(each.vectors.dtype)] = None
    return {
        "model": _of_all(sets, "model"),
        "model_options": _of_each(sets, "model_options"),
        "dataset": _of_all(sets, "dataset", "source"),
        "data_options": _of_each(sets, "data_options"),
        "split": _of_all(sets, "split"),
        "dtype": "+".join(dtypes),
        "maps": _maps(sets),
        "pipeline": list(map(str, steps)),
        "fitted_on": fitted_on,
        "seed": seed,
        "jackknife_blocks": blocks,
        "versions": library_versions(),
    }


def origin_of(sets: Sets) -> str:
    """`scenes/test`: the data set and split of the rows, where they are known."""
    return "/".join(filter(None, (_of_all(sets, "dataset", "source"), _of_all(sets, "split")))) or "these rows"


def _of_all(sets: Sets, *keys: str) -> str | None:
    """What the provenance of the sets says under the first key that any has, each value once."""
    for key in keys:
        values = {}
        for each in sets.values():
            if each.provenance.get(key):
                values[str(each.provenance[key])] = None
        if values:
            return " + ".join(values)
    return None


def _of_each(sets: Sets, key: str) -> dict[str, Any]:
    """Options that all sets share, or those of each."""
    options = {}
    for modality, each in sets.items():
        options[modality] = dict(each.provenance.get(key) or {})
    first, *others = options.values()
    return first if others.count(first) == len(others) else options


def _maps(sets: Sets) -> str | None:
    """The saved maps that the rows had gone through before they were read, in words."""
    words = {}
    for modality, each in sets.items():
        maps = []
        for applied in each.provenance.get("maps") or ():
            maps.append(f"{' → '.join(applied['pipeline'])} fitted on {applied['fitted_on']}")
        words[modality] = ", then ".join(maps)
    if len(set(words.values())) == 1:
        return next(iter(words.values())) or None
    return "; ".join(f"{modality} {each}" for modality, each in words.items() if each)
