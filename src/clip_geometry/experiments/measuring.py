"""Measures of the sets at hand as result rows: what `measure` prints and the geometry experiment writes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from clip_geometry.embeddings import Embeddings, pair
from clip_geometry.geometry import Measure, by_group, measures
from clip_geometry.geometry.null import null_result
from clip_geometry.geometry.rows import as_rows
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.transforms import Step, prepare, transforms
from clip_geometry.versions import library_versions


class MeasuredSets:
    """Image and/or text embeddings after a pipeline, ready to be measured.

    sets: modality → Embeddings. Results of one function are kept, so that I1 and I2, or the numbers of a cone, cost
    one call. Raises InputError for sets that no measure can use: fewer than two rows, NaN, different dimensions.
    """

    def __init__(self, sets: Mapping[str, Embeddings], steps: Sequence[Step], *, seed: int = 0):
        self.embeddings = dict(sets)
        self.steps = tuple(steps)
        self.seed = seed
        for modality, each in self.embeddings.items():
            as_rows(each.vectors, name=modality)
        dims = {modality: each.dim for modality, each in self.embeddings.items()}
        if len(set(dims.values())) > 1:
            given = " and ".join(f"{modality} has dimension {dim}" for modality, dim in dims.items())
            raise InputError(f"{given}; measures across modalities need one space")
        prepared = prepare(self.steps, {modality: each.vectors for modality, each in self.embeddings.items()})
        self.rows, self.refusal = prepared.sets, prepared.refusal
        self._pairs: tuple[np.ndarray, np.ndarray] | None = None
        self._kept: dict[Any, Any] = {}

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Row indices (i, j) of the matching pairs; InputError where there are none."""
        if self._pairs is None:
            self._pairs = pair(self.embeddings["image"], self.embeddings["text"])
        return self._pairs

    def measure(self, measure: Measure) -> Iterator[Row]:
        """One row for each set the measure applies to. Raises InputError where it needs what is not there."""
        if measure.takes == "two sets":
            yield self._row(measure, "both", self._two_sets(measure))
            return
        for modality, rows in self.rows.items():
            labels = self.embeddings[modality].labels
            if measure.takes == "rows":
                yield self._row(measure, modality, (rows,))
            elif labels is not None:
                yield self._row(measure, modality, (rows, labels))
        if measure.takes == "labelled rows" and all(each.labels is None for each in self.embeddings.values()):
            raise InputError(f"{measure.name} needs labels")

    def _two_sets(self, measure: Measure) -> tuple[np.ndarray, np.ndarray]:
        if len(self.rows) < 2:
            raise InputError(f"{measure.name} needs image and text, only {next(iter(self.rows))} was given")
        if self.refusal:
            raise InputError(f"{measure.name} compares the modalities, but {self.refusal}")
        if "pairs" not in measure.needs:
            return self.rows["image"], self.rows["text"]
        try:
            i, j = self.pairs()
        except InputError as error:
            raise InputError(f"{measure.name} needs pairs: {error}") from None
        return self.rows["image"][i], self.rows["text"][j]

    def _row(self, measure: Measure, modality: str, sets: tuple) -> Row:
        first = sets[0]
        paired = "pairs" in measure.needs
        value = self._value(measure, (modality, paired), lambda: measure.function(*sets, **measure.options))
        null = self._value(measure, (modality, paired, "null"), lambda: self._null(measure, modality, sets))
        return {
            "measure": measure.name,
            "value": value,
            "null_value": null,
            "n": len(first) if measure.takes != "two sets" or paired else len(first) + len(sets[1]),
            "d": first.shape[1],
            "at": {"modality": modality},
        }

    def _value(self, measure: Measure, key: tuple, compute: Callable[[], Any]) -> float:
        key = (measure.function, tuple(measure.options.items()), *key)
        if key not in self._kept:
            self._kept[key] = compute()
        return float(measure.pick(self._kept[key]))

    def _null(self, measure: Measure, modality: str, sets: tuple) -> Any:
        """The same on a Gaussian of the same sizes and root mean square row length, through the same steps."""
        source = self.embeddings["image" if modality == "both" else modality].vectors
        two = measure.takes == "two sets"
        return null_result(
            measure,
            len(sets[0]),
            source.shape[1],
            n_text=len(sets[1]) if two else None,
            labels=None if two or len(sets) < 2 else sets[1],
            scale=_coordinate_rms(source),
            prepare=self._prepare_null,
            seed=self.seed,
        )

    def gaussian(self) -> np.ndarray:
        """Isotropic Gaussian rows, as many as the first set has, through the same steps."""
        first = next(iter(self.embeddings.values())).vectors
        rows = torch.randn(first.shape, generator=torch.Generator().manual_seed(self.seed), dtype=torch.float64)
        return self._prepare_null(_coordinate_rms(first) * rows).numpy()

    def _prepare_null(self, rows: torch.Tensor) -> torch.Tensor:
        steps = [Step(step.name) for step in self.steps]  # fitted on the Gaussian itself
        return torch.as_tensor(prepare(steps, {"null": rows.numpy()}).sets["null"])


def _coordinate_rms(vectors: np.ndarray) -> float:
    mean_square = np.mean(
        [np.square(part.astype(np.float64)).mean() for part in np.array_split(vectors, 16) if len(part)]
    )
    return float(np.sqrt(mean_square))


def context(sets: MeasuredSets) -> Row:
    """What every row of these sets has in common: where the numbers come from and how they were made."""
    origins = [each.provenance for each in sets.embeddings.values()]

    def common(key: str) -> Any:
        values = list(dict.fromkeys(str(origin[key]) for origin in origins if origin.get(key) is not None))
        return " + ".join(values) or None

    fitted = [step for step in sets.steps if transforms[step.name].fits]
    return {
        "model": common("model"),
        "dataset": common("dataset") or common("source"),
        "split": common("split"),
        "dtype": "+".join(dict.fromkeys(str(each.vectors.dtype) for each in sets.embeddings.values())),
        "pipeline": [str(step) for step in sets.steps],
        "fitted_on": ", ".join(f"{step.scope or 'each'} of these rows" for step in fitted) or None,
        "seed": sets.seed,
        "versions": library_versions(),
    }


def measure_sets(
    sets: MeasuredSets, names: Sequence[str] | None, *, on_measure: Callable[[str], None] = lambda name: None
) -> Iterator[Row]:
    """Rows of the named measures; of all measures where names is None.

    A named measure that cannot be taken raises InputError; an unnamed one gives a row without a value whose `note`
    says why, and the rest runs.
    """
    chosen = [measures[name] for name in names] if names is not None else default_measures()
    for measure in chosen:
        on_measure(measure.name)
        yield from rows_or_note(sets, measure, named=names is not None)


def default_measures() -> list[Measure]:
    return [measure for measure in by_group() if measure.by_default]


def rows_or_note(sets: MeasuredSets, measure: Measure, *, named: bool) -> list[Row]:
    """The measure's rows, or, unless it was asked for by name, one row with a note instead of a value."""
    try:
        return list(sets.measure(measure))
    except InputError as error:
        if named:
            raise
        note = str(error).removeprefix(f"{measure.name} ")
        return [{"measure": measure.name, "value": None, "note": note, "at": {}}]


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
