"""Pipelines: steps that are fitted on sets of embeddings and applied to the same or other sets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from clip_geometry.registry import InputError, did_you_mean
from clip_geometry.rows.streamed import StreamedRows, cat, taken
from clip_geometry.steps import ANY, SCOPES, Step, parse_pipeline
from clip_geometry.transforms.base import Rows, Transform, as_matrix
from clip_geometry.transforms.elementary import Normalize
from clip_geometry.transforms.unpaired import IsoCLIP

RowSets: TypeAlias = Mapping[str, Rows]
Indices: TypeAlias = tuple[np.ndarray, np.ndarray]
PairIndices: TypeAlias = Indices | Callable[[str, str], Indices] | None


@dataclass(frozen=True, eq=False)
class Affine:
    """An affine map x ↦ x W + b that equals a fitted chain of transforms, for programs without this package.

    `Pipeline.affine` returns it. Calling it maps rows, including any scaling to unit length before and after. The
    result equals that of `Pipeline.transform` up to rounding relative to ‖x W‖. For whitened rows far from the origin
    (mean longer than 1000 times the spread), the rounding is larger than that of `transform`, which subtracts the mean
    first.

    Args:
        W: (d_in, d_out) float64 matrix.
        b: (d_out,) float64 vector.
        renormalise: Whether rows are scaled to unit length after the map.
        unit_rows_in: Whether rows are scaled to unit length before the map, because the chain starts with normalize.
            The rows of most CLIP indexes already have unit length.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Pipeline
        >>> fitted = Pipeline("scale(2),center").fit({"any": np.array([[1.0, 0.0], [3.0, 4.0]])})
        >>> affine = fitted.affine("any")
        >>> affine.W.tolist(), affine.b.tolist()
        ([[2.0, 0.0], [0.0, 2.0]], [-4.0, -4.0])
        >>> affine(np.array([[1.0, 1.0]]))
        array([[-2., -2.]])
    """

    W: np.ndarray
    b: np.ndarray
    renormalise: bool
    unit_rows_in: bool = False

    @classmethod
    def of(cls, chain: Iterable[Transform], d: int) -> "Affine":
        """Combine fitted transforms of rows of dimension d into one affine map.

        Returns:
            The affine map.

        Raises:
            InputError: A normalize stands between other steps (it may come first and last), or a step is not affine.
        """
        weights, shift = np.eye(d), np.zeros(d)
        unit_rows_in = False
        unit = mapped = False  # whether a normalize came last, and whether an affine step came before
        for transform in chain:
            if isinstance(transform, Normalize):
                unit = True
                continue
            if unit and mapped:
                raise InputError(
                    f"a normalize stands between affine steps (before {transform.name}), so the pipeline is not an "
                    "affine map; normalize may only come first and last"
                )
            w, b = transform.weights()
            weights, shift = weights @ w, shift @ w + b
            unit_rows_in = unit_rows_in or unit
            unit = False
            mapped = True
        return cls(weights, shift, renormalise=unit, unit_rows_in=unit_rows_in)

    @cached_property
    def identity(self) -> bool:
        """Whether W is the identity, so that the product can be skipped."""
        return self.W.shape[0] == self.W.shape[1] and np.array_equal(self.W, np.eye(len(self.W)))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = Normalize().apply(x) if self.unit_rows_in else as_matrix(x)
        if x.shape[1] != len(self.W):
            raise InputError(f"rows have dimension {x.shape[1]}, but the map was fitted on dimension {len(self.W)}")
        mapped = (x if self.identity else x @ self.W) + self.b
        return Normalize().apply(mapped) if self.renormalise else mapped


class Pipeline:
    """A sequence of transforms. Each is fitted on the output of the transforms before it.

    `fit` returns a new, fitted pipeline with one chain of transforms per modality and leaves the original unchanged.
    `transform` of the fitted pipeline applies these chains to the same or other sets.

    Args:
        steps: The steps of the pipeline, as `parse_pipeline` returns them.

    Attributes:
        steps: The steps as written.
        chains: Modality → its fitted transforms in order, or {"any": …} for all modalities; empty before `fit`.
        dimensions: Modality → (dimension before, dimension after).
        fitted_on: Description of the fitting sets, such as `coco/train:pooled`; None if no step is fitted.
        refusal: Why measures across modalities make no sense after this pipeline; None if they do.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Pipeline
        >>> rng = np.random.default_rng(0)
        >>> image, text = rng.normal(size=(20, 3)), rng.normal(size=(20, 3)) + 5
        >>> fitted = Pipeline("center[each],normalize").fit({"image": image, "text": text}, origin="coco/train")
        >>> fitted.fitted_on, fitted.dimensions["text"]
        ('coco/train:each', (3, 3))
        >>> bool(abs(fitted.transform({"text": text})["text"].mean()) < 0.2)
        True
    """

    def __init__(
        self,
        steps: str | Sequence[str | Step],
        chains: Mapping[str, tuple[Transform, ...]] | None = None,
        dimensions: Mapping[str, tuple[int, int]] | None = None,
        fitted_on: str | None = None,
        refusal: str | None = None,
    ):
        self.steps = parse_pipeline(steps)
        self.chains = dict(chains or {})
        self.dimensions = dict(dimensions or {})
        self.fitted_on = fitted_on
        self.refusal = refusal

    def fit(self, sets: RowSets, pairs: PairIndices = None, *, origin: str = "these rows") -> "Pipeline":
        """Fit all steps and return the fitted pipeline.

        Args:
            sets: Modality → (n, d) rows, or {"any": rows} for one map of every modality.
            pairs: Which rows belong together, for steps such as procrustes[text-to-image]. Either index arrays (i, j)
                for two sets, where row i[k] of the first belongs to row j[k] of the second, in the order of their names
                (image, text); or a function that returns such arrays for two names in that order. None pairs by
                position.
            origin: Description of the rows, for `fitted_on`.

        Returns:
            A fitted copy of the pipeline.
        """
        return self.fit_transform(sets, pairs, origin=origin)[0]

    def fit_transform(
        self, sets: RowSets, pairs: PairIndices = None, *, origin: str = "these rows"
    ) -> "tuple[Pipeline, dict[str, Any]]":
        """Fit all steps, and return the fitted pipeline and the transformed sets (float64; as given without steps)."""
        rows: dict[str, Any] = _as_sets(sets)
        chains: dict[str, tuple[Transform, ...]] = dict.fromkeys(rows, ())
        fitted_on: list[str] = []
        refusal = None
        for step in self.steps:
            for modality, fitted in _fit(step, rows, pairs).items():
                rows[modality] = fitted.apply(rows[modality])
                chains[modality] += (fitted,)
            if step.fits:
                scope = step.scope
                if scope is None:
                    scope = next(iter(rows)) if len(rows) == 1 else "each"
                    scope = "all" if step.kind.joint else scope
                fitted_on.append(origin if scope == ANY else f"{origin}:{scope}")
                # axes and means of separate fits share no space, so distances across the sets would be meaningless
                if step.scope is None and not step.kind.joint and len(rows) > 1:
                    refusal = refusal or (
                        f"{step} was fitted on each modality separately; write {step}[pooled] for one fit, "
                        f"or {step}[each] if separate fits are intended"
                    )
        description = ", ".join(dict.fromkeys(fitted_on)) or None
        dimensions = {modality: (np.shape(x)[1], rows[modality].shape[1]) for modality, x in sets.items()}
        return Pipeline(self.steps, chains, dimensions, description, refusal), rows

    def transform(self, sets: RowSets) -> dict[str, Any]:
        """Apply the fitted pipeline to sets by modality.

        Args:
            sets: Modality → (n, d) rows.

        Returns:
            Modality → transformed rows in float64, or as given if the pipeline has no steps.

        Raises:
            InputError: The pipeline was not fitted for a modality, or the rows have another dimension.
        """
        transformed = {}
        for modality, x in _as_sets(sets).items():
            key = self._key(modality)
            if x.shape[1] != self.dimensions[key][0]:
                raise InputError(
                    f"{modality} rows have dimension {x.shape[1]}, but the pipeline was fitted on dimension "
                    f"{self.dimensions[key][0]}"
                )
            for transform in self.chains[key]:
                x = transform.apply(x)
            transformed[modality] = x
        return transformed

    def affine(self, modality: str) -> Affine:
        """Return the chain of the modality as one affine map; raise InputError if it is not affine."""
        key = self._key(modality)
        return Affine.of(self.chains[key], self.dimensions[key][0])

    def only(self, modality: str) -> "Pipeline":
        """Return the map of one modality as a pipeline for rows of any modality."""
        chains, dimensions = {ANY: self.chains[modality]}, {ANY: self.dimensions[modality]}
        return Pipeline(self.steps, chains, dimensions, self.fitted_on, self.refusal)

    def _key(self, modality: str) -> str:
        """Return the key of the modality's chain: its own name, or "any"."""
        self._require_fitted()
        if modality in self.chains:
            return modality
        if ANY in self.chains:
            return ANY
        fitted = " and ".join(self.chains)
        raise InputError(f"the pipeline was fitted for {fitted} rows, but {modality} rows were given")

    def _require_fitted(self) -> None:
        if not self.chains:
            raise InputError("the pipeline is not fitted yet; call fit first, which returns the fitted pipeline")

    def save(self, path: str | Path) -> None:
        """Write the fitted pipeline as .safetensors (see `map_file`), completely or not at all."""
        from clip_geometry.transforms.map_file import write_map

        self._require_fitted()
        write_map(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> "Pipeline":
        """Read a file that `save` wrote; raise InputError for damaged files and for other files."""
        from clip_geometry.transforms.map_file import read_map

        return read_map(Path(path))


def _as_sets(sets: RowSets) -> dict[str, Rows]:
    """Convert lists to arrays; raise InputError for input that is not a matrix and for rows without a name."""
    if not isinstance(sets, Mapping):
        raise InputError(
            f"the sets are a {type(sets).__name__}; expected a mapping by name, "
            '{"image": rows, "text": rows}, or {"any": rows} for one map of every modality'
        )
    converted = {}
    for name, x in sets.items():
        converted[name] = x if len(getattr(x, "shape", ())) == 2 else as_matrix(x, name=str(name))
    return converted


def _fit(step: Step, rows: RowSets, pairs: PairIndices) -> dict[str, Transform]:
    """Fit one step, and return the transform of each modality that it changes."""
    if step.kind.onto:
        source, target = step.sides()
        sources = [name for name in rows if name != target] if source == "all" else [source]
        if not sources:
            raise InputError(f"{step} maps other modalities onto {target}, but only {target} rows were given")
        return {name: step.make().fit(*_onto(step, name, target, rows, pairs)) for name in sources}
    transform: Transform = step.make()
    if isinstance(transform, IsoCLIP):
        names = sorted(rows)  # the result does not depend on the order in which sets are given
        return dict(zip(names, transform.fit_sets([rows[name] for name in names]), strict=True))
    if not step.fits or step.scope is None or step.scope == "each":
        return {modality: step.make().fit(x) for modality, x in rows.items()}
    if len({x.shape[1] for x in rows.values()}) > 1:
        sizes = " and ".join(f"{name} has dimension {x.shape[1]}" for name, x in rows.items())
        raise InputError(f"{step} needs all sets in one space, but {sizes}")
    fitting = _pooled(rows) if step.scope == "pooled" else _fitting_rows(step, step.scope, rows)
    return dict.fromkeys(rows, transform.fit(fitting))


def _pooled(rows: RowSets) -> Rows:
    """Return the rows of all sets in the order of their names, so that sums do not depend on the order of the sets."""
    ordered = [as_matrix(rows[name]) for name in sorted(rows)]
    if not any(isinstance(x, StreamedRows) for x in ordered):
        return np.concatenate(ordered)
    return cat([x.double() if isinstance(x, StreamedRows) else StreamedRows.of(x) for x in ordered])


def _onto(step: Step, source: str, target: str, rows: RowSets, pairs: PairIndices) -> list[Rows]:
    """Return the rows of source and target on which a step is fitted: aligned rows if it is fitted on pairs."""
    sets = [_fitting_rows(step, name, rows) for name in (source, target)]
    if not step.kind.paired:
        return sets
    n, m = map(len, sets)
    if pairs is None:
        if n != m:
            raise InputError(
                f"without pairs, {step} pairs rows by position, but there are {n} {source} and {m} {target} rows; give "
                "pairs=(i, j), where row i[k] of one set belongs to row j[k] of the other"
            )
        return sets
    first, second = sorted((source, target))
    if not callable(pairs) and len(rows) > 2:
        raise InputError(
            f"{step} is fitted on pairs of two of {len(rows)} sets; give pairs as a function (name, name) → (i, j)"
        )
    try:
        i, j = pairs(first, second) if callable(pairs) else pairs
    except InputError as error:
        raise InputError(f"{step} needs pairs: {error}") from None
    source_indices, target_indices = (i, j) if source == first else (j, i)
    return [taken(sets[0], source_indices), taken(sets[1], target_indices)]


def _fitting_rows(step: Step, modality: str, rows: RowSets) -> Rows:
    """Return the rows of the modality on which a step is to be fitted; raise InputError if there are none."""
    if modality not in rows:
        given = " and ".join("unnamed" if name == ANY else name for name in rows)
        hint = did_you_mean(modality, (*rows, *SCOPES))
        raise InputError(f"{step} is to be fitted on {modality} rows, but only {given} rows were given{hint}")
    return rows[modality]
