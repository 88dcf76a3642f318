"""Pipelines: steps written as strings, fitted on the sets at hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from clip_geometry.geometry._core.streamed import StreamedRows, cat
from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Rows, Transform, as_matrix, transforms
from clip_geometry.transforms.fitted import ANY, FittedPipeline, as_sets
from clip_geometry.transforms.step import Step, parse_pipeline

Sets: TypeAlias = Mapping[str, Rows]
Indices: TypeAlias = tuple[np.ndarray, np.ndarray]
Pairs: TypeAlias = Indices | Callable[[], Indices] | None


class Pipeline:
    """Steps that are fitted together: `Pipeline("normalize,whiten(128)[pooled]").fit(sets)`.

    Each step is fitted on what the steps before it make of the sets.
    """

    def __init__(self, steps: str | Sequence[str | Step]):
        self.steps = parse_pipeline(steps)

    def fit(self, sets: Sets, pairs: Pairs = None, *, origin: str = "these rows") -> FittedPipeline:
        """sets: modality → (n, d) rows, or {"any": rows} for one map of every modality.

        pairs: index arrays (i, j), image row i[k] belonging to text row j[k] (source and target rows where the sets
        are called so), or a function that gives them; only steps such as procrustes[text-to-image] need them.
        origin: what the rows are, for `fitted_on`.
        """
        return self.fit_transform(sets, pairs, origin=origin)[0]

    def fit_transform(
        self, sets: Sets, pairs: Pairs = None, *, origin: str = "these rows"
    ) -> tuple[FittedPipeline, dict[str, Any]]:
        """The fitted pipeline and what it makes of the sets it was fitted on (float64; as given without steps)."""
        rows = dict(as_sets(sets))
        chains: dict[str, tuple[Transform, ...]] = dict.fromkeys(rows, ())
        for step in self.steps:
            for modality, fitted in _fit(step, rows, pairs).items():
                rows[modality] = fitted.transform(rows[modality])
                chains[modality] += (fitted,)
        fitted = FittedPipeline(
            steps=self.steps,
            chains=chains,
            dimensions={modality: (np.shape(x)[1], rows[modality].shape[1]) for modality, x in sets.items()},
            fitted_on=_fitted_on(self.steps, rows, origin),
            refusal=_refusal(self.steps, rows),
        )
        return fitted, rows


@dataclass(frozen=True)
class Prepared:
    """The sets after the pipeline, arrays or StreamedRows as they were given; `refusal` says why measures across sets
    may not be taken, if so."""

    sets: Mapping[str, Any]
    refusal: str | None
    fitted: FittedPipeline


def prepare(steps: Sequence[Step], sets: Sets, pairs: Pairs = None, *, origin: str = "these rows") -> Prepared:
    """`Pipeline.fit_transform` of parsed steps: fitted on the very sets that are moved."""
    fitted, rows = Pipeline(steps).fit_transform(sets, pairs, origin=origin)
    return Prepared(rows, fitted.refusal, fitted)


def _fit(step: Step, rows: Sets, pairs: Pairs) -> dict[str, Transform]:
    """The fitted transform of each modality that the step moves."""
    entry = transforms[step.name]
    if entry.paired:
        return _fit_pairs(step, rows, pairs)
    if not entry.fits or step.scope in (None, "each"):
        return {modality: step.make().fit(x) for modality, x in rows.items()}
    if step.scope == "pooled":
        if len({x.shape[1] for x in rows.values()}) > 1:
            raise InputError(f"{step} needs one space, but the sets have different dimensions")
        shared = step.make().fit(_pooled(list(rows.values())))
    else:
        _require(step, step.scope or "", rows)
        shared = step.make().fit(rows[step.scope or ""])
    return dict.fromkeys(rows, shared)


def _fit_pairs(step: Step, rows: Sets, pairs: Pairs) -> dict[str, Transform]:
    source, target = step.sides()
    for side in (source, target):
        _require(step, side, rows)
    if pairs is None:
        raise InputError(
            f"{step} learns from pairs, but it was not said which {source} and {target} rows are pairs; "
            "give pairs=(i, j), row i[k] of the one belonging to row j[k] of the other"
        )
    try:
        left, right = pairs() if callable(pairs) else pairs
    except InputError as error:
        raise InputError(f"{step} needs pairs: {error}") from None
    if source == "text":  # pairs are (image, text)
        left, right = right, left
    return {source: step.make().fit(taken(rows[source], left), taken(rows[target], right))}


def _pooled(sets: Sequence[Rows]) -> Rows:
    streamed = [x for x in sets if isinstance(x, StreamedRows)]
    if len(streamed) == len(sets):
        return cat([x.double() for x in streamed])
    return np.concatenate([as_matrix(x) for x in sets if not isinstance(x, StreamedRows)])


def taken(x: Rows, rows: np.ndarray) -> Rows:
    """Those rows, in this order; of StreamedRows they are not read yet."""
    if np.array_equal(rows, np.arange(len(x))):
        return x
    return x.take(torch.from_numpy(rows)) if isinstance(x, StreamedRows) else x[rows]


def _require(step: Step, modality: str, rows: Sets) -> None:
    if modality not in rows:
        given = " and ".join("unnamed" if name == ANY else name for name in rows)
        raise InputError(f"{step} is to be fitted on {modality} rows, but only {given} rows were given")


def _fitted_on(steps: Sequence[Step], rows: Sets, origin: str) -> str | None:
    """`scenes/test:pooled`: the rows that the steps were fitted on, each scope once."""
    alone = next(iter(rows)) if len(rows) == 1 else "each"
    scopes = [step.scope or alone for step in steps if transforms[step.name].fits]
    return ", ".join(dict.fromkeys(origin if s == ANY else f"{origin}:{s}" for s in scopes)) or None


def _refusal(steps: Sequence[Step], rows: Sets) -> str | None:
    """Axes and means of two fits do not belong to one space, so distances across the sets mean nothing."""
    for step in steps:
        if transforms[step.name].fits and step.scope is None and len(rows) > 1:
            return (
                f"{step} was fitted on each modality by itself; write {step}[pooled] for one fit, "
                f"or {step}[each] if that is meant"
            )
    return None
