"""Measures of the sets at hand as result rows: what `measure` prints and the geometry experiment writes."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from clip_geometry.embeddings import Embeddings, pair
from clip_geometry.geometry import Measure, by_group, measures
from clip_geometry.geometry.rows import as_rows
from clip_geometry.geometry.uncertainty import BLOCKS, deal, jackknife
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.transforms import Pipeline, Step, prepare, transforms
from clip_geometry.versions import library_versions

QUADRATIC_ROWS = 4000  # measures in O(n²) get no standard error beyond
KEPT_BYTES = 2**30  # of rows without each block, rather than moving them again for every measure


class MeasuredSets:
    """Image and/or text embeddings after a pipeline, ready to be measured.

    sets: modality → Embeddings. seed: of the Gaussian behind the null values and of the dealing into blocks. blocks:
    of the jackknife behind the standard errors, 0 for none. What a function returned is kept, so that I1 and I2, or
    the numbers of a cone, cost one call. Raises InputError for sets that no measure can use: fewer than two rows, NaN,
    infinity.
    """

    def __init__(self, sets: Mapping[str, Embeddings], steps: Sequence[Step], *, seed: int = 0, blocks: int = BLOCKS):
        self.embeddings = dict(sets)
        self.steps = tuple(steps)
        self.seed = seed
        self.blocks = blocks
        for modality, each in self.embeddings.items():
            as_rows(each.vectors, name=modality)
        prepared = prepare(self.steps, self._vectors(), lambda: self.pairs, origin=origin_of(self.embeddings))
        self.rows, self.refusal, self.fitted_on = prepared.sets, prepared.refusal, prepared.fitted.fitted_on
        self._kept: dict[Any, Any] = {}

    def _vectors(self) -> dict[str, np.ndarray]:
        return {modality: each.vectors for modality, each in self.embeddings.items()}

    @cached_property
    def null(self) -> "MeasuredSets":
        """The same with isotropic Gaussian rows: equal n, d, labels, pairs, steps and mean squared row length."""
        generator = torch.Generator().manual_seed(self.seed)
        sets = {}
        for modality, each in self.embeddings.items():
            rows = torch.randn(each.vectors.shape, generator=generator, dtype=torch.float64)
            sets[modality] = replace(each, vectors=(_coordinate_rms(each.vectors) * rows).numpy())
        return MeasuredSets(sets, self.steps, seed=self.seed, blocks=0)

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Row indices (i, j) of all matching pairs; InputError where there are none."""
        return pair(self.embeddings["image"], self.embeddings["text"])

    @cached_property
    def distinct_pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """One pair of rows for each item."""
        return pair(self.embeddings["image"], self.embeddings["text"], distinct=True)

    def places(self, measure: Measure) -> list[str]:
        """Where the measure can be taken: "both", or some of the modalities. Raises InputError where nowhere."""
        if not measure.across and measure.takes != "labelled rows":
            return list(self.rows)
        if measure.across:
            self._check_across(measure)
            return ["both"]
        # a class prompt stands for its class: alone in it, it has no silhouette
        labelled = [name for name, e in self.embeddings.items() if e.labels is not None and e.pair_on != "label"]
        if not labelled:
            raise InputError(f"{measure.name} needs labels")
        return labelled

    def _check_across(self, measure: Measure) -> None:
        if len(self.rows) < 2:
            raise InputError(f"{measure.name} needs image and text, only {next(iter(self.rows))} was given")
        if self.refusal:
            raise InputError(f"{measure.name} compares the modalities, but {self.refusal}")
        dims = {modality: rows.shape[1] for modality, rows in self.rows.items()}
        if len(set(dims.values())) > 1:
            given = " and ".join(f"{modality} has dimension {dim}" for modality, dim in dims.items())
            raise InputError(f"{measure.name} needs one space, but {given}")

    def row(self, measure: Measure, place: str) -> Row:
        """The measure in one of its places, with its standard error, its null value and what it leaves out."""
        arguments = self._arguments(measure, place)
        counts = [len(part) for part in arguments]
        row = {
            "measure": measure.name,
            "value": self.value(measure, place),
            "standard_error": self.standard_error(measure, place),
            "null_value": self.null.value(measure, place),
            "n": sum(counts) if measure.takes == "two sets" else counts[0],
            "d": next(iter(self.rows.values())).shape[1] if place == "both" else self.rows[place].shape[1],
            "at": {"modality": place},
        }
        remark = measure.remark(*arguments) if measure.remark else None
        return row if remark is None else {**row, "note": remark}

    def value(self, measure: Measure, place: str) -> float:
        return float(measure.pick(self._result(measure, place)))

    def standard_error(self, measure: Measure, place: str) -> float | None:
        """By the jackknife over blocks of items, the pipeline fitted anew without each; None where there is none.

        Not of extremes and arbitrary bases, where the jackknife is wrong, and not where `blocks` rounds of O(n²) would
        take long (more than QUADRATIC_ROWS rows).
        """
        large = measure.quadratic and max(map(len, self._arguments(measure, place))) > QUADRATIC_ROWS
        if not measure.smooth or large or self.blocks < 2 or len(self._units) < self.blocks:
            return None
        try:
            without = [measure.pick(self._result(measure, place, block)) for block in range(self.blocks)]
        except InputError:  # too small without a block
            return None
        return float(jackknife(without))

    def _result(self, measure: Measure, place: str, block: int | None = None) -> Any:
        key = (measure.function, tuple(measure.options.items()), measure.takes, place, block)
        if key not in self._kept:
            self._kept[key] = measure.function(*self._arguments(measure, place, block), **measure.options)
        return self._kept[key]

    def _arguments(self, measure: Measure, place: str, block: int | None = None) -> tuple:
        """What the measure takes, of all rows or of those outside of a block."""
        rows, kept = (self.rows, None) if block is None else (self._rows_without(block), self._outside(block))

        def of(modality: str, part: np.ndarray) -> np.ndarray:
            return part if kept is None else part[kept[modality]]

        if measure.takes == "labelled rows":
            return of(place, rows[place]), of(place, np.asarray(self.embeddings[place].labels))
        if not measure.across:
            return (of(place, rows[place]),)
        if measure.takes == "two sets":
            return of("image", rows["image"]), of("text", rows["text"])
        try:
            i, j = self.pairs if measure.takes == "pairs" else self.distinct_pairs
        except InputError as error:
            raise InputError(f"{measure.name} needs pairs: {error}") from None
        if kept is not None:
            both = kept["image"][i] & kept["text"][j]
            i, j = i[both], j[both]
        return rows["image"][i], rows["text"][j]

    @cached_property
    def _units(self) -> dict[Any, int]:
        """Every item, numbered: an image and all its captions are one, and lie in one block."""
        keys = (self._keys(each) for each in self.embeddings.values())
        return {key: number for number, key in enumerate(dict.fromkeys(key for part in keys for key in part))}

    def _keys(self, embeddings: Embeddings) -> list:
        return list(range(len(embeddings))) if embeddings.item_id is None else embeddings.item_id.tolist()

    @cached_property
    def _block_of(self) -> dict[str, np.ndarray]:
        dealt = deal(len(self._units), self.blocks, self.seed).numpy()
        return {name: dealt[[self._units[key] for key in self._keys(e)]] for name, e in self.embeddings.items()}

    def _outside(self, block: int) -> dict[str, np.ndarray]:
        """modality → mask of the rows that are not in the block."""
        return {modality: blocks != block for modality, blocks in self._block_of.items()}

    def _rows_without(self, block: int) -> Mapping[str, np.ndarray]:
        """All rows, by the pipeline that is fitted without the block."""
        if not any(transforms[step.name].fits for step in self.steps):
            return self.rows
        key = ("rows without", block)
        if key in self._kept:
            return self._kept[key]
        kept, vectors = self._outside(block), self._vectors()

        def pairs() -> tuple[np.ndarray, np.ndarray]:
            i, j = self.pairs
            both = kept["image"][i] & kept["text"][j]
            place = {modality: np.cumsum(mask) - 1 for modality, mask in kept.items()}
            return place["image"][i[both]], place["text"][j[both]]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said once, of all rows
            fitted = Pipeline(self.steps).fit({name: rows[kept[name]] for name, rows in vectors.items()}, pairs)
        moved = fitted.transform(vectors)
        if self.blocks * sum(rows.nbytes for rows in moved.values()) < KEPT_BYTES:
            self._kept[key] = moved
        return moved


def _coordinate_rms(vectors: np.ndarray) -> float:
    """Root mean square of all coordinates, a block at a time."""
    blocks = (vectors[k : k + 4096].astype(np.float64) for k in range(0, len(vectors), 4096))
    return float(np.sqrt(sum(float(np.square(block).sum()) for block in blocks) / vectors.size))


def context(sets: MeasuredSets) -> Row:
    """What every row of these sets has in common: where the numbers come from and how they were made."""
    origins = {modality: each.provenance for modality, each in sets.embeddings.items()}

    def common(key: str) -> str | None:
        values = [str(origin[key]) for origin in origins.values() if origin.get(key) is not None]
        return " + ".join(dict.fromkeys(values)) or None

    def options(key: str) -> dict[str, Any]:
        found = {modality: dict(origin.get(key) or {}) for modality, origin in origins.items()}
        first, *others = found.values()
        return first if all(other == first for other in others) else found

    return {
        "model": common("model"),
        "model_options": options("model_options"),
        "dataset": common("dataset") or common("source"),
        "data_options": options("data_options"),
        "split": common("split"),
        "dtype": "+".join(dict.fromkeys(str(each.vectors.dtype) for each in sets.embeddings.values())),
        "maps": _maps(origins),
        "pipeline": [str(step) for step in sets.steps],
        "fitted_on": sets.fitted_on,
        "seed": sets.seed,
        "jackknife_blocks": sets.blocks,
        "versions": library_versions(),
    }


def _maps(origins: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The saved maps that the rows had gone through before they were read, in words."""
    applied = {
        modality: ", then ".join(f"{' → '.join(map['pipeline'])} fitted on {map['fitted_on']}" for map in origin["maps"])
        for modality, origin in origins.items()
        if origin.get("maps")
    }
    if len(applied) == len(origins) and len(set(applied.values())) == 1:
        return next(iter(applied.values()))
    return "; ".join(f"{modality} {words}" for modality, words in applied.items()) or None


def origin_of(sets: Mapping[str, Embeddings]) -> str:
    """`scenes/test`: the data set and split of the rows, where they are known."""
    found = [each.provenance for each in sets.values()]
    names = dict.fromkeys(
        str(p.get("dataset") or p.get("source")) for p in found if p.get("dataset") or p.get("source")
    )
    splits = dict.fromkeys(str(p["split"]) for p in found if p.get("split"))
    return "/".join(filter(None, (" + ".join(names), " + ".join(splits)))) or "these rows"


def measure_sets(
    sets: MeasuredSets, names: Sequence[str] | None, advance: Callable[[int], object] = lambda done: None
) -> Iterator[Row]:
    """Rows of the named measures; of all measures where names is None.

    A named measure that cannot be taken raises InputError; an unnamed one gives a row without a value whose `note`
    says why, and the rest runs. advance: called with 1 after each measure.
    """
    for measure in by_group() if names is None else [measures[name] for name in names]:
        yield from rows_or_notes(sets, measure, named=names is not None)
        advance(1)


def rows_or_notes(sets: MeasuredSets, measure: Measure, *, named: bool) -> list[Row]:
    """The measure's rows; where it cannot be taken, a row with a note instead of a value, unless it was named."""
    rows = []
    try:
        places = sets.places(measure)
    except InputError as error:
        if named:
            raise
        return [_note(measure, {}, error)]
    for place in places:
        try:
            rows.append(sets.row(measure, place))
        except InputError as error:
            if named:
                raise
            rows.append(_note(measure, {"modality": place}, error))
    return rows


def _note(measure: Measure, at: Mapping[str, Any], error: InputError) -> Row:
    note = str(error).removeprefix(f"{measure.name} ")
    return {"measure": measure.name, "value": None, "note": note, "at": dict(at)}


def split_by(sets: Mapping[str, Embeddings], column: str) -> Iterator[tuple[Any, dict[str, Embeddings]]]:
    """(value, the rows with that value of `column` in every set) for each value, in order of appearance.

    column: "label", "language" or a metadata column. Raises InputError where a set lacks it.
    """
    columns = {modality: _column(each, column) for modality, each in sets.items()}
    for value in dict.fromkeys(value for values in columns.values() for value in values.tolist()):
        yield value, {modality: sets[modality].take(values == value) for modality, values in columns.items()}


def _column(embeddings: Embeddings, column: str) -> np.ndarray:
    if column == "label" and embeddings.labels is not None:
        return np.asarray(embeddings.labels)
    if column == "language" and embeddings.language is not None:
        return np.full(len(embeddings), embeddings.language)
    if column in embeddings.metadata:
        return np.asarray(embeddings.metadata[column])
    known = [*embeddings.metadata, *(["label"] if embeddings.labels is not None else [])]
    raise InputError(
        f"{embeddings.modality} embeddings have no column {column!r} to group by; "
        + (f"they have {', '.join(known)}" if known else "they carry no columns at all")
    )
