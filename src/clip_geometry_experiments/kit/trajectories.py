"""Numbers recorded over a training: states to rows, rows to curves, and correlations over the states."""

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
    """The (states,) values of a row's `trajectory`, NaN where a value is missing."""
    return np.array([math.nan if value is None else value for value in row["trajectory"]])


def curves_by(key: Callable[[Row], Key], rows: Iterable[Mapping[str, Any]]) -> dict[Key, Values]:
    """Group the trajectories of rows.

    Args:
        key: What a row is grouped by.
        rows: Result rows; those without a `trajectory` are skipped.

    Returns:
        Key → (rows, states) values in the order of the rows, NaN where a value is missing.
    """
    found: dict[Key, list[Values]] = {}
    for row in rows:
        if "trajectory" in row:
            found.setdefault(key(dict(row)), []).append(states_of(row))
    return {each: np.array(values) for each, values in found.items()}


def curves_of(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[tuple[str, str, str], Values], NDArray[np.integer]]:
    """Read the states of one training of a CLIP.

    Returns:
        (curves, steps): (measure, modality, classes) → (states,) values, NaN where undefined; and their steps.
    """
    curves, steps = {}, []
    for row in rows:
        if "trajectory" in row and row["measure"] != "train_clip.training_loss":
            at, steps = row["at"], row["steps"]
            curves[row["measure"], at["modality"], at.get("classes", "all")] = states_of(row)
    return curves, np.array(steps)


def means_between(losses: Sequence[float], steps: Sequence[int]) -> list[float | None]:
    """Mean training loss between consecutive measured steps; None for the first, which has no step before it."""
    return [None, *(float(np.mean(losses[start:end])) for start, end in pairwise(steps))]


def correlations(x: Values, y: Values) -> dict[str, float | None]:
    """Correlations of two curves: `pearson`, `spearman`, and `pearson_log` of x and log y.

    Args:
        x: (n,) values.
        y: (n,) values.

    Returns:
        Name → correlation; None where a curve is constant or not finite, or has no logarithm.
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
    """A row for each named correlation, `experiment.name`; with a note instead of a value where it is undefined."""
    found = correlations(x, y)
    for name in names:
        row = {"measure": f"{experiment}.{name}", "value": found[name], "standard_error": None, "n": len(x), **fields}
        yield row if found[name] is not None else {**row, "note": "one of them is constant or not defined"}
