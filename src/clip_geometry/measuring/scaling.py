"""How numbers that depend on the size of a set change with it, and what to expect at the full size."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.catalog import read_yaml
from clip_geometry.geometry import Measure, measures
from clip_geometry.measuring.sets import MeasuredSets, call_of
from clip_geometry.measuring.views import View
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.rows.threads import side_by_side

DIVISIONS = 4  # random divisions of the items, each into halves, quarters and eighths
HALVINGS = 3  # down to n/8, so that a trend up to 8n extends as far as it was observed
# multiple of the rows that a measure needs at least; with fewer, the ten nearest rows are not a neighborhood
ENOUGH = 5
Z = 1.96


@dataclass(frozen=True)
class Trend:
    """A number that, once transformed, is linear in the logarithm of the size or in its inverse.

    Args:
        transformed: Transformation of the number.
        value: Inverse of `transformed`.
        slope: Derivative of `transformed`.
        size: Transformation of the number of items.
    """

    transformed: Callable[[np.ndarray], np.ndarray]
    value: Callable[[float], float]
    slope: Callable[[np.ndarray], np.ndarray]
    size: Callable[[np.ndarray], np.ndarray] = np.log

    def predict(self, n: np.ndarray, values: np.ndarray, errors: np.ndarray, full_size: int) -> tuple[float, float]:
        """Predict the transformed number at another size, with its standard error, by weighted least squares.

        The standard error combines that of the line, widened if the line misses the values by more than their errors,
        and that of the largest set. The latter is needed because all sizes use the same items, so that the line does
        not average out their deviation from the population.
        """
        x, y = self.size(n.astype(float)), self.transformed(values)
        errors = self.slope(values) * errors
        design = np.stack([np.ones_like(x), x], 1) / errors[:, None]
        covariance = np.linalg.inv(design.T @ design)
        line = covariance @ design.T @ (y / errors)
        misfit = np.square(design @ line - y / errors).sum() / max(len(n) - 2, 1)
        predictor = np.array([1, self.size(np.array(full_size))])
        variance = predictor @ covariance @ predictor * max(1, misfit) + errors[-1] ** 2
        return float(predictor @ line), float(np.sqrt(variance))


# If rows nearer than its pair occur at the rate λ, a query ranks its pair first in a share exp(-λn) of the sets of size
# n. If all queries have the same rate, log(-log R@1) has slope 1 in log n; if the rates differ, logit R@1 is nearly
# linear. Real sets are in between, so the interval spans both.
_LOGIT = Trend(lambda p: np.log(p / (1 - p)), lambda y: 1 / (1 + np.exp(-y)), lambda p: 1 / (p * (1 - p)))
_SURVIVAL = Trend(lambda p: np.log(-np.log(p)), lambda y: np.exp(-np.exp(y)), lambda p: 1 / (p * np.abs(np.log(p))))
_EVENT = Trend(
    lambda p: np.log(-np.log1p(-p)), lambda y: -np.expm1(-np.exp(y)), lambda p: 1 / ((1 - p) * np.abs(np.log1p(-p)))
)
_LINEAR = Trend(lambda v: v, lambda y: y, np.ones_like)
_POWER = Trend(np.log, np.exp, lambda v: 1 / v)
# v − 1 is the number of rows before the pair
_RANK = Trend(lambda v: np.log(v - 1), lambda y: 1 + np.exp(y), lambda v: 1 / (v - 1))
# tr(Σ²)/tr(Σ)² of n rows is too large by about 1/n
_INVERSE = Trend(lambda v: 1 / v, lambda y: 1 / y if y > 0 else np.inf, lambda v: -1 / v**2, lambda n: 1 / n)

# part of a measure's name → the trends to try, or the reason why there is none
TRENDS: Mapping[str, Sequence[Trend] | str] = {
    ".same_modality_at_": (_LOGIT, _EVENT),
    ".r_at_": (_LOGIT, _SURVIVAL),
    ".median_rank": (_RANK,),
    "contrastive_loss": (_LINEAR, _POWER),
    "participation_ratio": (_INVERSE,),
    **{part: why for why, parts in read_yaml(Path(__file__).with_name("no_trend.yaml")).items() for part in parts},
}


def add_scaling(sets: MeasuredSets, rows: Sequence[Row], full_size: int | None = None) -> None:
    """Add values in random subsets, and the value to expect at full size, to the rows of measures that depend on n.

    Items are drawn, not rows, so that an image and its captions stay together. The pipeline stays as it was fitted on
    all items, so only the size changes. Each row gets `scaling`: for n/8, n/4, n/2 and n items, the mean `value` over
    `subsets` and its `standard_error`. Sizes at which the measure does not exist are omitted. If the pipeline is
    fitted, n/2 also has `unseen`, the value of halves after the pipeline fitted on the other half. With a full size,
    each row also gets `expected`, as returned by `expected_at`.

    Args:
        sets: The sets after their pipeline.
        rows: Rows from `measure_sets`, which are modified in place.
        full_size: Number of items of the full set that these items are a sample of.

    Raises:
        InputError: The sets are streamed because they are too large for memory or read by an engine, or the full size
            is not above their number of items.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> from clip_geometry.measuring.scaling import add_scaling
        >>> x = np.random.default_rng(0).normal(size=(400, 32))
        >>> measured = cg.MeasuredSets({"audio": cg.Embeddings(x, "audio")}, ())
        >>> (row,) = cg.measure_sets(measured, ["participation_ratio"])
        >>> add_scaling(measured, [row], full_size=1600)
        >>> [(size["n"], round(size["value"], 1)) for size in row["scaling"]]
        [(50, 19.1), (100, 24.0), (200, 27.4), (400, 29.4)]
        >>> {key: round(value, 1) for key, value in row["expected"].items()}
        {'n': 1600, 'value': 31.3, 'low': 30.5, 'high': 32.0}
    """
    sets = sets.whole("scaling")
    if full_size is not None and full_size <= len(sets.items):
        raise InputError(
            f"the full size is {full_size}, but {len(sets.items)} items were given; expected a larger full size"
        )
    calls: dict[Any, list[tuple[Measure, Row]]] = defaultdict(list)
    for row in rows:
        measure = measures[row["measure"]]
        if row["value"] is not None and measure.depends_on_n:
            calls[*call_of(measure), row["at"]["modality"]].append((measure, row))

    def by_size(members: list[tuple[Measure, Row]]) -> dict[str, list[Row]]:
        return _by_size(sets, [measure for measure, _ in members], members[0][1]["at"]["modality"])

    groups = list(calls.values())
    map_groups = side_by_side if sets.small and not sets.learns else map
    for members, sizes in zip(groups, map_groups(by_size, groups), strict=True):
        for measure, row in members:
            whole = {"n": len(sets.items), "value": row["value"], "standard_error": row["standard_error"], "subsets": 1}
            row["scaling"] = [*reversed(sizes[measure.name]), whole]
            if full_size is not None:
                row["expected"] = expected_at(measure, row["scaling"], full_size, row["d"])


def _by_size(sets: MeasuredSets, measures: Sequence[Measure], place: str) -> dict[str, list[Row]]:
    """Return the values of measures that read the result of one call, by name, from the largest subsets to the
    smallest."""
    by_name: dict[str, list[Row]] = {measure.name: [] for measure in measures}
    for halvings in range(1, HALVINGS + 1):
        n = len(sets.items) // 2**halvings
        if n < 2:
            break
        try:
            values = _values(_subsets(sets, n), measures, place)
            unseen = _values(_subsets(sets, n, unseen=True), measures, place) if sets.learns and halvings == 1 else {}
        except InputError:  # too few items
            break
        for name, in_subsets in values.items():
            # disjoint subsets are independent, but further divisions use the same items
            error = np.sqrt(np.reshape(in_subsets, (DIVISIONS, -1)).var(axis=1, ddof=1).mean() / (len(sets.items) // n))
            mean = float(np.mean(in_subsets))
            size = {"n": n, "value": mean, "standard_error": float(error), "subsets": len(in_subsets)}
            if name in unseen:
                size["unseen"] = float(np.mean(unseen[name]))
            by_name[name].append(size)
    return by_name


def _values(views: Iterator[View], measures: Sequence[Measure], place: str) -> dict[str, list[float]]:
    """Return the values in each view, for the measures that exist in all views."""
    first = measures[0]
    values: dict[str, list[float]] = {measure.name: [] for measure in measures}
    for view in views:
        result = first.function(*view.arguments(first, place), **first.options)
        for measure in measures:
            try:
                values.get(measure.name, []).append(float(measure.pick(result)))
            except KeyError:  # for example, no ten nearest of eight rows
                values.pop(measure.name, None)
    return values


def _subsets(sets: MeasuredSets, n: int, *, unseen: bool = False) -> Iterator[View]:
    """Yield disjoint subsets of n random items, for one division after the other.

    With `unseen`, the pipeline is fitted on the items outside the subset instead of on all items.
    """
    rng = np.random.default_rng(sets.seed)
    items = sets.items.of_rows
    for _ in range(DIVISIONS):
        order = rng.permutation(len(sets.items))
        for k in range(len(sets.items) // n):
            inside = np.isin(np.arange(len(sets.items)), order[k * n : (k + 1) * n])
            # class prompts have item -1, which indexes the appended entry, so they are in all subsets
            subset = sets.part({name: np.append(inside, True)[numbers] for name, numbers in items.items()})
            if unseen:
                outside = {name: np.append(~inside, True)[numbers] for name, numbers in items.items()}
                fitted = sets.part(outside, refit=True).fitted
                rows = {name: embeddings.vectors for name, embeddings in subset.embeddings.items()}
                subset = View(subset.embeddings, fitted.transform(rows)) if fitted else subset
            yield subset


def expected_at(measure: Measure, scaling: Sequence[Row], full_size: int, d: int) -> Row:
    """Return the value to expect at another size, if a fit of the trend supports one.

    Shares are linear in log n on the scale of the logit or of the complementary log-log. Other numbers are linear in
    log n, a power of n, or linear in 1/n (`TRENDS`). The interval spans the 95% intervals of all trends tried for a
    measure, clipped to its range.

    No value is returned if no trend predicts the value of the largest set from the smaller ones within its standard
    error, if the full size exceeds the largest set by a larger factor than the largest set exceeds the smallest, or if
    a pipeline that was fitted on these items gives a different value for other items. The trend cannot foresee what a
    sample lacks. If the full set has many more near-duplicates, for example, other rows are nearest.

    Args:
        measure: The measure.
        scaling: Values by size, smallest first, as added by `add_scaling`.
        full_size: The other size, in items.
        d: The dimension, which is a bound of some measures.

    Returns:
        n, value, low and high; or n and a `note` that says why no value can be expected.

    Example:
        >>> import clip_geometry as cg
        >>> from clip_geometry.measuring.scaling import expected_at
        >>> sizes = [(62, 0.675), (125, 0.812), (250, 0.888), (500, 0.941)]  # COCO, centered per modality
        >>> scaling = [{"n": n, "value": value, "standard_error": 0.008} for n, value in sizes]
        >>> own = cg.geometry.measures["retrieval[mixed].image.same_modality_at_10"]
        >>> {key: round(value, 2) for key, value in expected_at(own, scaling, 2000, 512).items()}
        {'n': 2000, 'value': 0.99, 'low': 0.98, 'high': 1.0}
        >>> expected_at(cg.geometry.measures["cone_min_cosine"], scaling, 2000, 512)["note"]
        'an extreme follows the rarest rows, which a sample lacks'
    """

    def without_value(note: str) -> Row:
        return {"n": full_size, "note": note}

    trends = next((trends for part, trends in TRENDS.items() if part in measure.name), "it has no known trend")
    if isinstance(trends, str):
        return without_value(trends)
    least = ENOUGH * measure.least_n
    sizes = [size for size in scaling if size["n"] >= least]
    if len(sizes) < 3:
        return without_value(f"three sizes are needed, so a quarter of the items must be at least {least}")
    n, values = (np.array([size[key] for size in sizes]) for key in ("n", "value"))
    if full_size > n[-1] ** 2 / n[0]:
        return without_value(f"the trend is known for a factor of {n[-1] / n[0]:.0f}, from {n[0]} to {n[-1]} items")
    errors = [size["standard_error"] for size in sizes]
    # all items have the error of halves if they have none of their own
    errors = np.array([*errors[:-1], errors[-2] if errors[-1] is None else errors[-1]])
    half = scaling[-2]
    if abs(half.get("unseen", half["value"]) - half["value"]) > Z * errors.max():
        return without_value(
            f"the pipeline was fitted on these items: {half['n']} other items have {half['unseen']:.4g} after it, but "
            f"{half['n']} of these have {half['value']:.4g}; fit it on other items, and measure the output of apply"
        )
    low, high = (float(d) if bound == "d" else float(bound) for bound in measure.range)
    if not errors.all() or np.isin(values, (low, high)).any():
        return without_value("it is the same in all subsets of a size, or at an end of its range")
    predictions, misses = [], []
    for trend in trends:
        predicted, error = trend.predict(n[:-1], values[:-1], errors[:-1], n[-1])
        if abs(predicted - trend.transformed(values)[-1]) > error:
            misses.append(trend.value(predicted))
        predicted, error = trend.predict(n, values, errors, full_size)
        predictions.append([trend.value(predicted + sign * Z * error) for sign in (0, -1, 1)])
    if len(misses) == len(trends):
        return without_value(
            f"the smaller sizes predict {misses[0]:.4g} for {n[-1]} items, but these have {values[-1]:.4g}"
        )
    value = np.clip(np.mean([value for value, _, _ in predictions]), low, high)
    ends = np.clip(predictions, low, high)
    return {"n": full_size, "value": float(value), "low": float(ends.min()), "high": float(ends.max())}
