"""A pipeline spelled out as strings, applied to the sets at hand."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Transform, transforms

SCOPES = ("image", "text", "pooled", "each")
_STEP = re.compile(r"(?P<name>[\w-]+)(\[(?P<scope>[^\]]*)\])?$")


@dataclass(frozen=True)
class Step:
    """One step as written: `center`, `center[pooled]`, …

    scope: what a fitted step is fitted on: "image", "text" or "pooled" fit one object for all sets, "each" one per
    set. Without a scope each set is fitted by itself too, but measures across sets are then refused.
    """

    name: str
    scope: str | None = None

    def __str__(self) -> str:
        return f"{self.name}[{self.scope}]" if self.scope else self.name


def parse_step(text: str) -> Step:
    """`center[pooled]` as a Step; unknown names and scopes are InputErrors."""
    match = _STEP.match(text.strip())
    if match is None:
        raise InputError(f"pipeline step {text!r} is not of the form name or name[scope]")
    step = Step(match["name"], match["scope"])
    entry = transforms[step.name]
    if step.scope is not None and not entry.fits:
        raise InputError(f"pipeline step {step.name!r} learns nothing and takes no scope, but {text!r} was given")
    if step.scope is not None and step.scope not in SCOPES:
        raise InputError(f"pipeline step {text!r} has the unknown scope {step.scope!r}; known are {', '.join(SCOPES)}")
    return step


def parse_pipeline(steps: str | Sequence[str]) -> tuple[Step, ...]:
    """`"normalize,center"` or a list of steps; an empty string or list is the raw rows."""
    if isinstance(steps, str):
        steps = [part for part in steps.split(",") if part.strip()]
    return tuple(parse_step(step) for step in steps)


@dataclass(frozen=True)
class Prepared:
    """The sets after the pipeline; `refusal` says why measures across sets may not be taken, if so."""

    sets: Mapping[str, np.ndarray]
    refusal: str | None


def prepare(steps: Sequence[Step], sets: Mapping[str, np.ndarray]) -> Prepared:
    """Fits and applies each step in turn. sets: modality → (n, d) rows; the results are float64 (raw rows as given)."""
    refusal = None
    rows = dict(sets)
    for step in steps:
        fitted = _fit(step, rows)
        rows = {modality: fitted[modality].transform(x) for modality, x in rows.items()}
        if transforms[step.name].fits and step.scope is None and len(rows) > 1:
            refusal = (
                f"{step.name} was fitted on each modality by itself; write {step.name}[pooled] for one fit, "
                f"or {step.name}[each] if that is meant"
            )
    return Prepared(rows, refusal)


def _fit(step: Step, rows: Mapping[str, np.ndarray]) -> dict[str, Transform]:
    make = transforms[step.name].make
    if not transforms[step.name].fits or step.scope in (None, "each"):
        return {modality: make().fit(x) for modality, x in rows.items()}
    if step.scope == "pooled" and len({x.shape[1] for x in rows.values()}) > 1:
        raise InputError(f"{step} needs one space, but the sets have different dimensions")
    if step.scope == "pooled":
        shared = make().fit(np.concatenate([np.asarray(x, dtype=np.float64) for x in rows.values()]))
    elif step.scope in rows:
        shared = make().fit(rows[step.scope])
    else:
        raise InputError(f"{step} is to be fitted on {step.scope} rows, but only {', '.join(rows)} rows were given")
    return dict.fromkeys(rows, shared)
