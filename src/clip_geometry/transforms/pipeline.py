"""Pipelines: transforms written as strings, fitted on sets of embeddings and applied to the same or other sets."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from clip_geometry.registry import InputError, did_you_mean
from clip_geometry.rows.streamed import StreamedRows, cat
from clip_geometry.transforms.affine import Affine
from clip_geometry.transforms.base import Rows, Transform, as_learnable
from clip_geometry.transforms.isoclip import IsoCLIP
from clip_geometry.transforms.step import SCOPES, Step, parse_pipeline

RowSets: TypeAlias = Mapping[str, Rows]
Indices: TypeAlias = tuple[np.ndarray, np.ndarray]
PairIndices: TypeAlias = Indices | Callable[[str, str], Indices] | None

ANY = "any"  # the name of a set of no particular modality: its chain serves all of them


class Pipeline:
    """Steps that are fitted in order, each on the output of those before it.

    `fit` returns a fitted pipeline with one chain of transforms per modality, which `transform` applies to the same or
    other sets; the pipeline itself stays as it is.

    Args:
        steps: Such as "normalize,whiten(128)[pooled]", or a list of steps.

    Attributes:
        steps: As written.
        chains: Modality → its fitted transforms in order, or {"any": …} for all modalities; empty before `fit`.
        dimensions: Modality → (d_in, d_out).
        fitted_on: In words, such as `coco/train:pooled`; None if nothing is learned.
        refusal: Why measures across the sets are not allowed, if so.

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
        self.chains, self.dimensions = dict(chains or {}), dict(dimensions or {})
        self.fitted_on = fitted_on
        self.refusal = refusal

    def fit(self, sets: RowSets, pairs: PairIndices = None, *, origin: str = "these rows") -> "Pipeline":
        """Return the pipeline with all steps fitted.

        Args:
            sets: Modality → (n, d) rows, or {"any": rows} for one map of every modality.
            pairs: Which rows belong together, for steps such as procrustes[text-to-image]. Index arrays (i, j) of two
                sets, row i[k] of the first belonging to row j[k] of the second in the order of their names (image,
                text); or a function that returns them for two names in that order. None pairs by position.
            origin: What the rows are, for `fitted_on`.
        """
        return self.fit_transform(sets, pairs, origin=origin)[0]

    def fit_transform(
        self, sets: RowSets, pairs: PairIndices = None, *, origin: str = "these rows"
    ) -> "tuple[Pipeline, dict[str, Any]]":
        """Fit all steps; return the fitted pipeline and the sets after it (float64; as given if there are no steps)."""
        rows = dict(_as_sets(sets))
        chains: dict[str, tuple[Transform, ...]] = dict.fromkeys(rows, ())
        for step in self.steps:
            for modality, fitted in _fit(step, rows, pairs).items():
                rows[modality] = fitted.apply(rows[modality])
                chains[modality] += (fitted,)
        learning = [step for step in self.steps if step.kind.fits]
        alone = next(iter(rows)) if len(rows) == 1 else "each"
        scopes = [step.scope or ("all" if step.kind.joint else alone) for step in learning]
        fitted_on = dict.fromkeys(origin if scope == ANY else f"{origin}:{scope}" for scope in scopes)
        refusal = None
        # axes and means of two fits do not belong to one space: distances across the sets would mean nothing
        separate = (step for step in learning if step.scope is None and not step.kind.joint)
        if len(rows) > 1 and (step := next(separate, None)):
            refusal = (
                f"{step} was fitted on each modality by itself; write {step}[pooled] for one fit, "
                f"or {step}[each] if that is meant"
            )
        dimensions = {modality: (np.shape(x)[1], rows[modality].shape[1]) for modality, x in sets.items()}
        return Pipeline(self.steps, chains, dimensions, ", ".join(fitted_on) or None, refusal), rows

    def transform(self, sets: RowSets) -> dict[str, Any]:
        """Apply the fitted pipeline to sets by modality.

        Returns:
            The sets in float64, or as given if the pipeline has no steps.

        Raises:
            InputError: For a modality that it was not fitted for, and for rows of another dimension.
        """
        transformed = {}
        for modality, x in _as_sets(sets).items():
            key = self._key(modality)
            expected = self.dimensions[key][0]
            if len(shape := np.shape(x)) == 2 and shape[1] != expected:
                raise InputError(
                    f"{modality} rows have dimension {shape[1]}, but the pipeline was fitted on dimension {expected}"
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
        """Return the map of one modality as a map of any rows."""
        chains, dimensions = {ANY: self.chains[modality]}, {ANY: self.dimensions[modality]}
        return Pipeline(self.steps, chains, dimensions, self.fitted_on, self.refusal)

    def _key(self, modality: str) -> str:
        """The name of the modality's chain: its own, or "any"."""
        self._require_fitted()
        if modality in self.chains:
            return modality
        if ANY in self.chains:
            return ANY
        known = " and ".join(self.chains)
        raise InputError(f"the pipeline was fitted for {known} rows, but {modality} rows were given")

    def _require_fitted(self) -> None:
        if not self.chains:
            raise InputError("the pipeline is not fitted yet; call fit first, which returns the fitted pipeline")

    def save(self, path: str | Path) -> None:
        """Write the fitted pipeline as .safetensors (see `map_file`), whole or not at all."""
        from clip_geometry.transforms.map_file import write_map

        self._require_fitted()
        write_map(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> "Pipeline":
        """Read what `save` wrote; raise InputError for damaged and for foreign files."""
        from clip_geometry.transforms.map_file import read_map

        return read_map(Path(path))


def _as_sets(sets: RowSets) -> RowSets:
    """The sets with lists as arrays; raises InputError for what is no matrix and for rows without a name."""
    if not isinstance(sets, Mapping):
        raise InputError(
            f"a pipeline takes sets by name, not a {type(sets).__name__}: "
            'give {"image": rows, "text": rows}, or {"any": rows} for one map of every modality'
        )
    return {
        name: x if len(getattr(x, "shape", ())) == 2 else as_learnable(x, name=str(name)) for name, x in sets.items()
    }


def _fit(step: Step, rows: RowSets, pairs: PairIndices) -> dict[str, Transform]:
    """Fit one step and return the transform of each modality that it changes."""
    if step.kind.onto:
        return _fit_onto(step, rows, pairs)
    transform = step.make()
    if isinstance(transform, IsoCLIP):
        names = sorted(rows)  # the result does not depend on the order in which sets are given
        return dict(zip(names, transform.fit_sets([rows[name] for name in names]), strict=True))
    if not step.kind.fits or step.scope is None or step.scope == "each":
        return {modality: step.make().fit(x) for modality, x in rows.items()}
    if len({x.shape[1] for x in rows.values()}) > 1:
        given = " and ".join(f"{name} has dimension {x.shape[1]}" for name, x in rows.items())
        raise InputError(f"{step} needs one space, but {given}")
    fitting = _pooled(rows) if step.scope == "pooled" else _fitting_rows(step, step.scope, rows)
    return dict.fromkeys(rows, transform.fit(fitting))


def _pooled(rows: RowSets) -> Rows:
    """The rows of all sets in the order of their names, so that sums do not depend on the order of the sets."""
    ordered = [as_learnable(rows[name]) for name in sorted(rows)]
    in_memory = [x for x in ordered if not isinstance(x, StreamedRows)]
    if len(in_memory) == len(ordered):
        return np.concatenate(in_memory)
    return cat([x.double() if isinstance(x, StreamedRows) else StreamedRows.of(x) for x in ordered])


def _fit_onto(step: Step, rows: RowSets, pairs: PairIndices) -> dict[str, Transform]:
    given, target = step.sides()
    sources = [name for name in rows if name != target] if given == "all" else [given]
    if not sources:
        raise InputError(f"{step} maps other modalities onto {target}, but only {target} rows were given")
    fitted = {}
    for source in sources:
        sets = [_fitting_rows(step, side, rows) for side in (source, target)]
        if step.kind.paired:
            indices = _pairs(step, source, target, rows, pairs)
            sets = [taken(x, chosen) for x, chosen in zip(sets, indices, strict=True)]
        fitted[source] = step.make().fit(*sets)
    return fitted


def _pairs(step: Step, source: str, target: str, rows: RowSets, pairs: PairIndices) -> Indices:
    """The rows of the source and of the target that belong together."""
    n, m = len(rows[source]), len(rows[target])
    if pairs is None:
        if n != m:
            raise InputError(
                f"{step} pairs by position where no pairs are given, but there are {n} {source} and {m} {target} rows; "
                "give pairs=(i, j), row i[k] of the one belonging to row j[k] of the other"
            )
        return np.arange(n), np.arange(n)
    first, second = sorted((source, target))
    if not callable(pairs) and len(rows) > 2:
        raise InputError(f"{step} is fitted beside {len(rows)} sets; give pairs as a function (name, name) → (i, j)")
    try:
        i, j = pairs(first, second) if callable(pairs) else pairs
    except InputError as error:
        raise InputError(f"{step} needs pairs: {error}") from None
    return (i, j) if source == first else (j, i)


def _fitting_rows(step: Step, modality: str, rows: RowSets) -> Rows:
    if modality not in rows:
        given = " and ".join("unnamed" if name == ANY else name for name in rows)
        near = did_you_mean(modality, (*rows, *SCOPES))
        raise InputError(f"{step} is to be fitted on {modality} rows, but only {given} rows were given{near}")
    return rows[modality]


def taken(x: Rows, rows: np.ndarray) -> Rows:
    """Return the chosen rows in this order; of StreamedRows, nothing is read yet."""
    if np.array_equal(rows, np.arange(len(x))):
        return x
    return x.take(torch.from_numpy(rows)) if isinstance(x, StreamedRows) else x[rows]
