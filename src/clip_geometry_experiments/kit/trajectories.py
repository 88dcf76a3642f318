"""Values recorded during a training: conversion to rows and curves, and correlations over states."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from clip_geometry.results import Row

Key = TypeVar("Key", bound=Hashable)
Values = NDArray[np.float64]


def trajectory(values: Iterable[float]) -> list[float | None]:
    """Convert the values of the recorded states to JSON: None where a value is not finite."""
    return [float(value) if math.isfinite(value) else None for value in values]


def states_of(row: Mapping[str, Any]) -> Values:
    """Return the (states,) values of a row's `trajectory`, NaN where a value is missing."""
    return np.array([math.nan if value is None else value for value in row["trajectory"]])


def curves_by(key: Callable[[Row], Key], rows: Iterable[Mapping[str, Any]]) -> dict[Key, Values]:
    """Group the trajectories of rows.

    Args:
        key: Function that returns the group of a row.
        rows: Result rows; those without a `trajectory` are skipped.

    Returns:
        Group → (rows, states) values in the order of the rows, NaN where a value is missing.
    """
    groups: dict[Key, list[Values]] = {}
    for row in rows:
        if "trajectory" in row:
            groups.setdefault(key(dict(row)), []).append(states_of(row))
    return {group: np.array(values) for group, values in groups.items()}


def curves_of(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[tuple[str, str, str], Values], NDArray[np.integer]]:
    """Return the curves of one CLIP training.

    Args:
        rows: Result rows. Rows without a `trajectory` and the training loss are skipped.

    Returns:
        (curves, steps), where curves maps (measure, modality, classes) to (states,) values, NaN where undefined, and
        steps holds the steps of the states.
    """
    curves, steps = {}, []
    for row in rows:
        if "trajectory" in row and row["measure"] != "train_clip.training_loss":
            at, steps = row["at"], row["steps"]
            curves[row["measure"], at["modality"], at.get("classes", "all")] = states_of(row)
    return curves, np.array(steps)


def means_between(losses: Sequence[float], steps: Sequence[int]) -> list[float | None]:
    """Return the mean training loss between consecutive measured steps.

    Args:
        losses: The loss of each step.
        steps: The measured steps in ascending order.

    Returns:
        One mean per measured step; None for the first, which has no step before it.
    """
    return [None, *(float(np.mean(losses[start:end])) for start, end in pairwise(steps))]


def correlations(x: Values, y: Values) -> dict[str, float | None]:
    """Return correlations of two curves: `pearson`, `spearman`, and `pearson_log`, which correlates x with log y.

    Args:
        x: (n,) values.
        y: (n,) values.

    Returns:
        Name → correlation. It is None if a curve is constant or not finite; `pearson_log` is also None if a value of y
        is not positive.
    """
    from scipy import stats

    def defined(correlate: Callable[..., Any], y: Values) -> float | None:
        usable = np.isfinite(x).all() and np.isfinite(y).all() and len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
        return float(correlate(x, y).statistic) if usable else None

    return {
        "pearson": defined(stats.pearsonr, y),
        "spearman": defined(stats.spearmanr, y),
        "pearson_log": defined(stats.pearsonr, np.log(y)) if bool((y > 0).all()) else None,
    }


def correlation_rows(
    experiment: str, x: Values, y: Values, names: Sequence[str] = ("pearson", "spearman"), **fields: Any
) -> Iterator[Row]:
    """Yield one row, `experiment.name`, for each named correlation; an undefined one has a note instead of a value.

    Args:
        experiment: Prefix of the measure names.
        x: (n,) values.
        y: (n,) values.
        names: Names of the correlations, as in `correlations`.
        **fields: More fields of the rows.
    """
    by_name = correlations(x, y)
    for name in names:
        row = {"measure": f"{experiment}.{name}", "value": by_name[name], "standard_error": None, "n": len(x), **fields}
        yield row if by_name[name] is not None else {**row, "note": "one of them is constant or not defined"}
