"""Measures of the sets at hand as result rows: what `measure` prints and the geometry experiment writes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from clip_geometry.embeddings import Embeddings, pair
from clip_geometry.geometry import Measure, by_group, measures
from clip_geometry.geometry.rows import as_rows
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.transforms import Step, prepare, transforms
from clip_geometry.versions import library_versions


class MeasuredSets:
    """Image and/or text embeddings after a pipeline, ready to be measured.

    sets: modality → Embeddings. seed: of the Gaussian behind the null values. What a function returned is kept, so
    that I1 and I2, or the numbers of a cone, cost one call. Raises InputError for sets that no measure can use: fewer
    than two rows, NaN, infinity.
    """

    def __init__(self, sets: Mapping[str, Embeddings], steps: Sequence[Step], *, seed: int = 0):
        self.embeddings = dict(sets)
        self.steps = tuple(steps)
        self.seed = seed
        for modality, each in self.embeddings.items():
            as_rows(each.vectors, name=modality)
        prepared = prepare(self.steps, {modality: each.vectors for modality, each in self.embeddings.items()})
        self.rows, self.refusal = prepared.sets, prepared.refusal
        self._kept: dict[Any, Any] = {}

    @cached_property
    def null(self) -> "MeasuredSets":
        """The same with isotropic Gaussian rows: equal n, d, labels, pairs, steps and mean squared row length."""
        generator = torch.Generator().manual_seed(self.seed)
        sets = {}
        for modality, each in self.embeddings.items():
            rows = torch.randn(each.vectors.shape, generator=generator, dtype=torch.float64)
            sets[modality] = replace(each, vectors=(_coordinate_rms(each.vectors) * rows).numpy())
        return MeasuredSets(sets, self.steps, seed=self.seed)

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
        """The measure in one of its places, with its null value."""
        counts = [len(part) for part in self._arguments(measure, place)]
        return {
            "measure": measure.name,
            "value": self.value(measure, place),
            "null_value": self.null.value(measure, place),
            "n": sum(counts) if measure.takes == "two sets" else counts[0],
            "d": next(iter(self.rows.values())).shape[1] if place == "both" else self.rows[place].shape[1],
            "at": {"modality": place},
        }

    def value(self, measure: Measure, place: str) -> float:
        key = (measure.function, tuple(measure.options.items()), measure.takes, place)
        if key not in self._kept:
            self._kept[key] = measure.function(*self._arguments(measure, place), **measure.options)
        return float(measure.pick(self._kept[key]))

    def _arguments(self, measure: Measure, place: str) -> tuple:
        if measure.takes == "labelled rows":
            return self.rows[place], self.embeddings[place].labels
        if not measure.across:
            return (self.rows[place],)
        if measure.takes == "two sets":
            return self.rows["image"], self.rows["text"]
        try:
            i, j = self.pairs if measure.takes == "pairs" else self.distinct_pairs
        except InputError as error:
            raise InputError(f"{measure.name} needs pairs: {error}") from None
        return self.rows["image"][i], self.rows["text"][j]


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

    dataset, split = common("dataset") or common("source"), common("split")
    fitted = [step for step in sets.steps if transforms[step.name].fits]
    return {
        "model": common("model"),
        "model_options": options("model_options"),
        "dataset": dataset,
        "data_options": options("data_options"),
        "split": split,
        "dtype": "+".join(dict.fromkeys(str(each.vectors.dtype) for each in sets.embeddings.values())),
        "pipeline": [str(step) for step in sets.steps],
        "fitted_on": ", ".join(dict.fromkeys(_fitted_on(step, dataset, split) for step in fitted)) or None,
        "seed": sets.seed,
        "versions": library_versions(),
    }


def _fitted_on(step: Step, dataset: str | None, split: str | None) -> str:
    """`scenes/test:pooled`: the rows a step was fitted on, which here are those that are measured."""
    return f"{'/'.join(filter(None, (dataset, split))) or 'these rows'}:{step.scope or 'each'}"


def measure_sets(sets: MeasuredSets, names: Sequence[str] | None) -> Iterator[Row]:
    """Rows of the named measures; of all measures where names is None.

    A named measure that cannot be taken raises InputError; an unnamed one gives a row without a value whose `note`
    says why, and the rest runs.
    """
    for measure in by_group() if names is None else [measures[name] for name in names]:
        yield from rows_or_notes(sets, measure, named=names is not None)


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
