"""Embeddings after a pipeline: their items and origin, and their rows in the forms that measures take."""

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
from clip_geometry.geometry.uncertainty import assign_blocks
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
        embeddings: The embeddings before the pipeline, which hold the ids and labels.
        rows: Maps modality → rows. Default: the vectors of `embeddings`.
        steps: The pipeline to fit on these rows and apply to them; None if they already went through it.
    """

    def __init__(self, embeddings: Sets, rows: Rows | None = None, steps: Sequence[Step] | None = None):
        self.embeddings = dict(embeddings)
        self.rows: Mapping[str, Any] = rows or {name: embedded.vectors for name, embedded in embeddings.items()}
        self.fitted: Pipeline | None = None
        self._pairs: dict[tuple[str, str, bool], Pairs] = {}
        if steps and all(step.name == NORMALIZE for step in steps):
            # avoids importing the transforms, which are scikit-learn estimators and take a second to import
            self.rows = {modality: unit_array(rows) for modality, rows in self.rows.items()}
        elif steps:
            pipelines = import_module("clip_geometry.transforms.pipeline")
            origin = origin_of(embeddings)
            self.fitted, self.rows = pipelines.Pipeline(steps).fit_transform(self.rows, self.pairs_of, origin=origin)

    @cached_property
    def couples(self) -> dict[str, tuple[str, str]]:
        """The couples that measures across modalities use: "both" for two sets, "audio+image" and so on for more.

        The order within a couple is that of `in_order`, whatever the order of the sets.
        """
        order = in_order(self.embeddings)
        by_place = {}
        for couple in combinations(self.embeddings, 2):
            one, other = sorted(couple, key=order.index)
            by_place["both" if len(order) == 2 else f"{one}+{other}"] = one, other
        return by_place

    def pairs_of(self, first: str, second: str, *, distinct: bool = False) -> Pairs:
        """Return row indices (i, j) of all matching pairs of two sets, or with `distinct` of one pair per item.

        Raises InputError if there are none.
        """
        key = first, second, distinct
        if key not in self._pairs:
            self._pairs[key] = pair(self.embeddings[first], self.embeddings[second], distinct=distinct)
        return self._pairs[key]

    def places(self, measure: Measure) -> list[str]:
        """Return where the measure can be computed: modalities, "both" for two sets, or couples such as "audio+image".

        Raises InputError if there is no such place.
        """
        if measure.takes == "train and test":
            call = f"clip_geometry.{measure.function.__name__}"
            raise InputError(f"{measure.name} needs {measure.needs[0]}, which this command does not have; call {call}")
        if measure.takes == "rows":
            return list(self.rows)
        if measure.takes == "labeled rows":
            # a class prompt is the only row of its class, so it has no silhouette
            labeled = []
            for modality, embeddings in self.embeddings.items():
                if embeddings.labels is not None and not is_prompts(embeddings):
                    labeled.append(modality)
            if not labeled:
                raise InputError(f"{measure.name} needs labels; give one per row (labels, --labels FILE)")
            return labeled
        if len(self.rows) < 2:
            raise InputError(f"{measure.name} needs two modalities, but only {next(iter(self.rows))} was given")
        if self.fitted and self.fitted.refusal:
            raise InputError(f"{measure.name} compares the modalities, but {self.fitted.refusal}")
        places = []
        for place, (one, other) in self.couples.items():
            if not measure.one_space or self.rows[one].shape[1] == self.rows[other].shape[1]:
                places.append(place)
        if not places:
            sizes = " and ".join(f"{modality} has dimension {rows.shape[1]}" for modality, rows in self.rows.items())
            raise InputError(f"{measure.name} needs both sets in one space, but {sizes}")
        return places

    def arguments(self, measure: Measure, place: str) -> tuple[Any, ...]:
        """Return the arguments of the measure in one place, which is a modality or a couple of modalities."""
        if measure.takes == "rows":
            return (self.rows[place],)
        if measure.takes == "labeled rows":
            return self.rows[place], np.asarray(self.embeddings[place].labels)
        first, second = self.couples[place]
        x, y = self.rows[first], self.rows[second]
        if measure.takes == "two sets":
            return x, y
        if measure.takes == "classes":
            class_of_row, text_of_class = self._classes(measure, first, second)
            return x, class_of_row, y[text_of_class]
        try:
            i, j = self.pairs_of(first, second, distinct=measure.takes == "distinct pairs")
        except InputError as error:
            raise InputError(f"{measure.name} needs pairs: {error}") from None
        if measure.takes == "matched sets":
            x_rows, x_of_pair = np.unique(i, return_inverse=True)
            y_rows, y_of_pair = np.unique(j, return_inverse=True)
            if not len(x_rows) == len(y_rows) == len(i):  # some rows are in several pairs
                return taken(x, x_rows), taken(y, y_rows), np.stack((x_of_pair, y_of_pair))
        return taken(x, i), taken(y, j)

    def _classes(self, measure: Measure, first: str, second: str) -> Pairs:
        """Return the class of each row of the first set, and the row of the second set that is each class's text."""
        labels, text_labels = self.embeddings[first].labels, self.embeddings[second].labels
        if labels is None:
            raise InputError(f"{measure.name} needs labels of the {plural(first)}; give one per row")
        if text_labels is None:
            raise InputError(
                f"{measure.name} needs the class of every text as its label: a column 'label' beside the embeddings "
                "(.parquet, .npz 'labels'), or a store embedded with a prompt"
            )
        labels, text_labels = np.asarray(labels), np.asarray(text_labels)
        classes = np.unique(text_labels)
        if len(classes) < len(text_labels):  # captions are not class prompts
            raise InputError(
                f"{measure.name} needs one text per class, but {len(text_labels)} texts have {len(classes)} labels; "
                f"captions are not class prompts: embed the {plural(first)}' classes with a prompt"
            )
        class_of_row = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
        if not np.array_equal(classes[class_of_row], labels):
            raise InputError(
                f"{measure.name} needs a prompt for every class, but some {plural(first)} have a label without one"
            )
        return class_of_row, np.argsort(text_labels)


class Items:
    """The items of several sets. An image and all its captions are one item, and are in the same jackknife block.

    Class prompts are not sampled: they belong to no item, and remain when a block is left out.

    Args:
        sets: Maps modality → `Embeddings`. Rows without ids are items by position.
        blocks: Number of blocks that the items are assigned to.
        seed: Seed of the assignment.
    """

    def __init__(self, sets: Sets, *, blocks: int, seed: int):
        self.sets = dict(sorted(sets.items()))  # sorted, so that the order of the sets does not affect the numbers
        self.blocks, self.seed = blocks, seed
        self._samples = [embeddings for embeddings in self.sets.values() if not is_prompts(embeddings)]
        self._by_position = all(embeddings.item_id is None for embeddings in self._samples)
        self._numbers: dict[Any, int] = {}  # item number by id, filled by `of_rows`

    @cached_property
    def of_rows(self) -> dict[str, np.ndarray]:
        """The item number of each row, from 0; -1 for class prompts."""
        by_set: dict[str, np.ndarray] = {}
        numbers: dict[Any, int] = {}
        for name, embeddings in self.sets.items():
            if is_prompts(embeddings):
                by_set[name] = np.full(len(embeddings), -1)
            elif self._by_position:
                by_set[name] = np.arange(len(embeddings))
            else:
                keys: Sequence[Any] = range(len(embeddings))
                # rows without ids have those of the set that they pair with by position
                for source in (embeddings, *self._samples):
                    if source.item_id is not None and len(source) == len(embeddings):
                        keys = source.item_id.tolist()
                        break
                by_set[name] = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
        self._numbers = numbers
        return by_set

    def __len__(self) -> int:
        if self._by_position:
            return max(map(len, self._samples), default=0)
        _ = self.of_rows  # numbers the items
        return len(self._numbers)

    @property
    def has_blocks(self) -> bool:
        """Whether there are at least two blocks, and at least one item for each."""
        return 2 <= self.blocks <= len(self)

    @cached_property
    def block_of(self) -> dict[str, np.ndarray]:
        """The block of each row; -1 for class prompts."""
        block_of_item = assign_blocks(len(self), self.blocks, self.seed).numpy()
        by_set = {}
        for name, items in self.of_rows.items():
            by_set[name] = np.where(items < 0, -1, block_of_item[items])
        return by_set

    @cached_property
    def identity(self) -> dict[str, str]:
        """The fields that decide whether the errors of two records are paired.

        `item_blocks` is equal for the same items in the same blocks. `items_from` is "ids" or a digest of the first and
        last rows, since equal rows are surely the same items.
        """
        items: Any = f"{len(self)} rows"
        items_from = "ids"
        if self._by_position:
            checksum = hashlib.blake2b(digest_size=16)
            for embeddings in self.sets.values():
                for chunk in (embeddings.vectors[:4096], embeddings.vectors[-4096:]):
                    checksum.update(np.ascontiguousarray(chunk).tobytes())
            items_from = checksum.hexdigest()
        else:
            items = list(map(str, self._numbers))
        return {"item_blocks": digest([items, self.blocks, self.seed]), "items_from": items_from}


def is_prompts(embeddings: Embeddings) -> bool:
    """Return whether the rows are class prompts."""
    return embeddings.pair_on == "label"


def context(
    sets: Sets,
    *,
    seed: int,
    steps: Sequence[Step | str] = (),
    fitted_on: str | None = None,
    blocks: int = 0,
) -> Row:
    """Return the fields that all rows of these sets share: where the numbers come from and how they were computed.

    `sets` are the sets before `steps`. `blocks` is the number of jackknife blocks, 0 for none.
    """
    dtypes = {}
    for embeddings in sets.values():
        dtypes[str(embeddings.vectors.dtype)] = None
    return {
        "model": _joined_provenance(sets, "model"),
        "model_options": _options_of_sets(sets, "model_options"),
        "dataset": _joined_provenance(sets, "dataset", "source"),
        "data_options": _options_of_sets(sets, "data_options"),
        "split": _joined_provenance(sets, "split"),
        "dtype": "+".join(dtypes),
        "maps": _maps(sets),
        "pipeline": list(map(str, steps)),
        "fitted_on": fitted_on,
        "seed": seed,
        "jackknife_blocks": blocks,
        "versions": library_versions(),
    }


def origin_of(sets: Sets) -> str:
    """Return the dataset and split of the rows, such as `scenes/test`, as far as they are known."""
    return (
        "/".join(filter(None, (_joined_provenance(sets, "dataset", "source"), _joined_provenance(sets, "split"))))
        or "these rows"
    )


def _joined_provenance(sets: Sets, *keys: str) -> str | None:
    """Return the distinct provenance values of the sets, for the first key that any of them has."""
    for key in keys:
        values = {}
        for embeddings in sets.values():
            if embeddings.provenance.get(key):
                values[str(embeddings.provenance[key])] = None
        if values:
            return " + ".join(values)
    return None


def _options_of_sets(sets: Sets, key: str) -> dict[str, Any]:
    """Return the options that all sets share, or the options of each set."""
    options = {}
    for modality, embeddings in sets.items():
        options[modality] = dict(embeddings.provenance.get(key) or {})
    first, *others = options.values()
    return first if others.count(first) == len(others) else options


def _maps(sets: Sets) -> str | None:
    """Describe the saved maps that were applied to the rows before they were read."""
    descriptions = {}
    for modality, embeddings in sets.items():
        maps = []
        for applied in embeddings.provenance.get("maps") or ():
            maps.append(f"{' → '.join(applied['pipeline'])} fitted on {applied['fitted_on']}")
        descriptions[modality] = ", then ".join(maps)
    if len(set(descriptions.values())) == 1:
        return next(iter(descriptions.values())) or None
    return "; ".join(f"{modality} {description}" for modality, description in descriptions.items() if description)
