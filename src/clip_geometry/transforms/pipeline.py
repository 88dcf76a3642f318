"""Pipelines: transforms written as strings, fitted on sets of embeddings and applied to the same or other sets."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, TypeAlias, get_args, get_type_hints

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, did_you_mean, parts, shown
from clip_geometry.rows.streamed import StreamedRows, cat
from clip_geometry.transforms.base import Rows, Transform, as_matrix, transforms
from clip_geometry.transforms.elementary import Normalize
from clip_geometry.transforms.unpaired import IsoCLIP

RowSets: TypeAlias = Mapping[str, Rows]
Indices: TypeAlias = tuple[np.ndarray, np.ndarray]
PairIndices: TypeAlias = Indices | Callable[[str, str], Indices] | None

SCOPES = ("pooled", "each")  # or the name of a modality
ANY = "any"  # the name of a set of no particular modality: its chain serves all of them

_STEP = re.compile(r"(?P<name>[\w-]+)\s*(\((?P<values>[^()]*)\))?\s*(\[(?P<scope>[^\[\]]*)\])?")
_WORDS = {"true": True, "false": False, "none": None}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", NoneType: "none"}


@dataclass(frozen=True)
class Step:
    """One step as written: `center`, `whiten(128)[pooled]`, `procrustes[text-to-image]`, …

    Attributes:
        name: Of the transform.
        scope: The set a step is fitted on: a modality ("image") or "pooled" fit one map for all sets, "each" one per
            set. None also fits one per set, but then measures across sets are refused. Steps that map one set onto
            another have a direction instead ("text-to-image") and change only its source; "all-to-image" maps every
            other modality onto images. isoclip, which is fitted on two sets together, has None.
        parameters: Those that differ from their defaults, in the transform's order.

    Raises:
        InputError: For an unknown name, a scope that the transform does not take, and wrong values.
    """

    name: str
    scope: str | None = None
    parameters: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self):
        if self.scope is not None:
            _check_scope(self, self.scope)
        self.make().check()

    def __str__(self) -> str:
        known, written = signature(self.name), []
        for key, value in self.parameters:
            unnamed = key == "k" or known[key].default is inspect.Parameter.empty
            written.append(_text(value) if unnamed else f"{key}={_text(value)}")
        values, scope = f"({', '.join(written)})" if written else "", f"[{self.scope}]" if self.scope else ""
        return f"{self.name}{values}{scope}"

    @property
    def kind(self) -> type[Transform]:
        """The class of the transform."""
        return transforms[self.name]

    def make(self) -> Transform:
        """Return the transform, not yet fitted."""
        return self.kind(**dict(self.parameters))

    def sides(self) -> tuple[str, str]:
        """Return (source, target) of a step that maps one set onto another; raise InputError without a direction."""
        if self.scope is None:
            raise InputError(
                f"{self} maps one modality onto the other: write {self}[text-to-image] or {self}[image-to-text]"
            )
        source, _, target = self.scope.partition("-to-")
        return source, target


def parse_pipeline(steps: str | Sequence[str | Step]) -> tuple[Step, ...]:
    """Parse a pipeline.

    Args:
        steps: Such as "normalize,whiten(128)[pooled]", or a list of steps; an empty one leaves the rows as they are.

    Returns:
        The steps, parsed.

    Raises:
        InputError: For unknown names, scopes and parameters, and for wrong values.

    Example:
        >>> from clip_geometry import parse_pipeline
        >>> for step in parse_pipeline("normalize, pca(90, center=false)[text]"):
        ...     print(step.name, step.scope, step.parameters)
        normalize None ()
        pca text (('k', 90), ('center', False))
    """
    if not isinstance(steps, str | list | tuple):
        raise InputError(f"steps = {shown(steps)}; expected a pipeline such as 'normalize,center[each]', or its steps")
    parsed = []
    for step in filter(None, parts(steps) if isinstance(steps, str) else steps):
        parsed.append(step if isinstance(step, Step) else _parse_step(str(step).strip()))
    return tuple(parsed)


def _parse_step(text: str) -> Step:
    """Parse one step, such as `whiten(128)[pooled]`."""
    match = _STEP.fullmatch(text)
    if match is None:
        raise InputError(f"pipeline step {shown(text)} is not of the form name, name(value, key=value) or name[scope]")
    name = match["name"]
    kind = transforms[name]
    unnamed = []
    named = {}
    misplaced = False
    for value in parts(match["values"] or ""):
        key, _, word = value.rpartition("=")
        misplaced |= key.strip() in named or bool(named and not key.strip())
        if key.strip():
            named[key.strip()] = word.strip()
        else:
            unnamed.append(word.strip())
    try:
        bound = inspect.signature(kind).bind(*unnamed, **named)
    except TypeError as error:
        raise InputError(f"pipeline step {shown(text)}: {error}; write {usage(name)}") from None
    if misplaced:
        raise InputError(f"pipeline step {shown(text)} has a value out of place or twice; write {usage(name)}")
    parameters = []
    for key, written in bound.arguments.items():
        value = _value(written, get_type_hints(kind.__init__)[key], f"{key} of pipeline step {shown(text)}")
        if value != bound.signature.parameters[key].default:
            parameters.append((key, value))
    return Step(name, match["scope"], tuple(parameters))


def _check_scope(step: Step, scope: str) -> None:
    """Raise InputError where the brackets of a step hold no direction, or neither one of SCOPES nor a modality."""
    if not step.kind.fits or step.kind.joint:
        why = "is fitted on two modalities together" if step.kind.joint else "learns nothing"
        raise InputError(f"pipeline step {shown(step.name)} {why} and takes no scope, but {shown(str(step))} was given")
    what = "scope"
    expected = f"{', '.join(SCOPES)} or the name of a modality"
    names = [scope]
    if step.kind.onto:
        what, expected = "direction", "two modalities, as in text-to-image, or all-to-image for every other one"
        source, target = step.sides()
        names = [target if source == "all" else source, target if source != target else ""]
    try:
        for name in names:
            if step.kind.onto or name not in SCOPES:
                modality_name(name)
    except InputError:
        unknown = f"pipeline step {shown(str(step))} has the unknown {what} {shown(scope)}"
        raise InputError(f"{unknown}; expected {expected}") from None


def usage(name: str) -> str:
    """Return how a step is written: `pca(k, center=true)`."""
    words = []
    for key, parameter in signature(name).items():
        words.append(key if parameter.default is parameter.empty else f"{key}={_text(parameter.default)}")
    return f"{name}({', '.join(words)})" if words else name


def signature(name: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a transform in their order."""
    return inspect.signature(transforms[name]).parameters


def _value(text: str, hint: Any, what: str) -> Any:
    """Return `text` as one of the types that the annotation allows."""
    value = _WORDS.get(text.casefold(), text.strip("'\""))
    try:
        # a number may be a string here; true, false and none may not stand for one, nor other words for them
        return TypeAdapter(hint).validate_python(value, strict=hint is bool or not isinstance(value, str))
    except ValidationError:
        options = [str(_KINDS.get(option, option)) for option in get_args(hint) or (hint,)]
        near = did_you_mean(text, options)
        raise InputError(f"{what} is {shown(text)}; expected {' or '.join(options)}{near}") from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool | NoneType) else str(value)


@dataclass(frozen=True, eq=False)
class Affine:
    """The affine map x ↦ x W + b of a chain of transforms, for programs that do not know this package.

    Calling it on rows applies all of it, the unit lengths included. The result equals the chain's transform up to
    rounding relative to ‖x W‖: for whitened rows far from the origin (‖μ‖ above 1000 times the spread) that is more
    than the transform's own rounding, which centers first.

    Args:
        W: (d_in, d_out) float64.
        b: (d_out,) float64.
        renormalise: Whether rows are made unit length afterwards.
        unit_rows_in: Whether rows have to be unit length before W, which a leading normalize asks for; those of most
            CLIP indices are already.

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
        """Combine fitted transforms of rows of dimension d.

        Raises:
            InputError: If normalize stands between other steps (it may come first and last), or a step is not affine.
        """
        weights, shift = np.eye(d), np.zeros(d)
        unit_rows_in = unit = mapped = False
        for transform in chain:
            if isinstance(transform, Normalize):
                unit = True
                continue
            if unit and mapped:
                raise InputError(
                    f"a normalize stands between affine steps (before {transform.name}), so the pipeline is no affine "
                    "map; normalize may come first and last"
                )
            w, b = transform.weights()
            weights, shift = weights @ w, shift @ w + b
            unit_rows_in, unit, mapped = unit_rows_in or unit, False, True
        return cls(weights, shift, renormalise=unit, unit_rows_in=unit_rows_in)

    @cached_property
    def identity(self) -> bool:
        """Whether W is the identity, whose product is left out."""
        return self.W.shape[0] == self.W.shape[1] and np.array_equal(self.W, np.eye(len(self.W)))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = Normalize().apply(x) if self.unit_rows_in else as_matrix(x)
        if x.shape[1] != len(self.W):
            raise InputError(f"rows have dimension {x.shape[1]}, but the map was fitted on dimension {len(self.W)}")
        mapped = (x if self.identity else x @ self.W) + self.b
        return Normalize().apply(mapped) if self.renormalise else mapped


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
        rows: dict[str, Any] = _as_sets(sets)
        chains: dict[str, tuple[Transform, ...]] = dict.fromkeys(rows, ())
        fitted_on, refusal = [], None
        for step in self.steps:
            for modality, fitted in _fit(step, rows, pairs).items():
                rows[modality] = fitted.apply(rows[modality])
                chains[modality] += (fitted,)
            if step.kind.fits:
                alone = next(iter(rows)) if len(rows) == 1 else "each"
                scope = step.scope or ("all" if step.kind.joint else alone)
                fitted_on.append(origin if scope == ANY else f"{origin}:{scope}")
                # axes and means of two fits do not belong to one space: distances across the sets would mean nothing
                if step.scope is None and not step.kind.joint and len(rows) > 1:
                    refusal = refusal or (
                        f"{step} was fitted on each modality by itself; write {step}[pooled] for one fit, "
                        f"or {step}[each] if that is meant"
                    )
        words = ", ".join(dict.fromkeys(fitted_on)) or None
        dimensions = {modality: (np.shape(x)[1], rows[modality].shape[1]) for modality, x in sets.items()}
        return Pipeline(self.steps, chains, dimensions, words, refusal), rows

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
            if x.shape[1] != self.dimensions[key][0]:
                fitted = f"the pipeline was fitted on dimension {self.dimensions[key][0]}"
                raise InputError(f"{modality} rows have dimension {x.shape[1]}, but {fitted}")
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


def _as_sets(sets: RowSets) -> dict[str, Rows]:
    """The sets with lists as arrays; raises InputError for what is no matrix and for rows without a name."""
    if not isinstance(sets, Mapping):
        raise InputError(
            f"a pipeline takes sets by name, not a {type(sets).__name__}: "
            'give {"image": rows, "text": rows}, or {"any": rows} for one map of every modality'
        )
    found = {}
    for name, x in sets.items():
        found[name] = x if len(getattr(x, "shape", ())) == 2 else as_matrix(x, name=str(name))
    return found


def _fit(step: Step, rows: RowSets, pairs: PairIndices) -> dict[str, Transform]:
    """Fit one step and return the transform of each modality that it changes."""
    if step.kind.onto:
        source, target = step.sides()
        sources = [name for name in rows if name != target] if source == "all" else [source]
        if not sources:
            raise InputError(f"{step} maps other modalities onto {target}, but only {target} rows were given")
        return {name: step.make().fit(*_onto(step, name, target, rows, pairs)) for name in sources}
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
    ordered = [as_matrix(rows[name]) for name in sorted(rows)]
    if not any(isinstance(x, StreamedRows) for x in ordered):
        return np.concatenate(ordered)
    return cat([x.double() if isinstance(x, StreamedRows) else StreamedRows.of(x) for x in ordered])


def _onto(step: Step, source: str, target: str, rows: RowSets, pairs: PairIndices) -> list[Rows]:
    """The rows of the source and of the target that a step is fitted on; for one on pairs, the pairs."""
    sets = [_fitting_rows(step, name, rows) for name in (source, target)]
    if not step.kind.paired:
        return sets
    n, m = map(len, sets)
    if pairs is None:
        if n != m:
            raise InputError(
                f"{step} pairs by position where no pairs are given, but there are {n} {source} and {m} {target} rows; "
                "give pairs=(i, j), row i[k] of the one belonging to row j[k] of the other"
            )
        return sets
    first, second = sorted((source, target))
    if not callable(pairs) and len(rows) > 2:
        raise InputError(f"{step} is fitted beside {len(rows)} sets; give pairs as a function (name, name) → (i, j)")
    try:
        chosen = pairs(first, second) if callable(pairs) else pairs
    except InputError as error:
        raise InputError(f"{step} needs pairs: {error}") from None
    return [taken(x, each) for x, each in zip(sets, chosen if source == first else reversed(chosen), strict=True)]


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
