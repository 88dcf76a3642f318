"""Conversion between the recorded states of a training and result rows."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from clip_geometry.geometry.uncertainty import jackknife
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit import trajectories
from clip_geometry_experiments.kit.trajectories import Values
from clip_geometry_experiments.mickus2024.classify.config import ClassifyConfig, known_measure
from clip_geometry_experiments.mickus2024.classify.task import ClassificationTask, Loaded
from clip_geometry_experiments.mickus2024.classify.training import LayerPlace, Model

SEED = "classifier.seed"  # seed of the initial weights; a row's own `seed` is for samples and held-out examples

KINDS = ("silhouette", "isoscore")  # measures that are correlated
SHUFFLED = "shuffled labels"

Curves = dict[LayerPlace, Values]  # LayerPlace → values (seeds, states)


def state_row(config: ClassifyConfig, loaded: Loaded, place: LayerPlace, values: Sequence[float], seed: int) -> Record:
    """Return one row with all states of a number in `trajectory`, None where undefined; its value is the last."""
    states = trajectories.trajectory(values)
    n, d = _size(config, loaded, place)
    at = {**config.options(), SEED: seed, "examples": place.examples, "layer": place.layer}
    if place.examples == "held out" and place.layer == "input":
        note = "nothing trains these rows: the same in all states"
        return Record(place.measure, states[-1], n=n, d=d, at={**at, "update": 0}, note=note)
    fields: Row = {"at": {**at, "update": config.updates}, "trajectory": states, "every": config.measure_every}
    fields |= {} if states[-1] is not None else {"note": "not defined in the last state"}
    return Record(place.measure, states[-1], n=n, d=d, **fields)


def _size(config: ClassifyConfig, loaded: Loaded, place: LayerPlace) -> tuple[int, int | None]:
    """Return the n and d of the rows that are measured at a place."""
    task = loaded.unseen if place.examples == "held out" else loaded.trained
    assert task is not None  # otherwise no such place exists
    if place.layer == "output":
        return len(task.examples), None
    unpaired = place.layer == "input" and known_measure(place.measure).takes == "rows"
    n = len(task.items if unpaired else task.examples)
    d = task.items.shape[1] if unpaired else task.width
    return min(n, config.sample or n), d if place.layer == "input" else config.hidden


def correlation_rows(config: ClassifyConfig, curves: Curves, seed: int | str) -> Iterator[Row]:
    """Compute correlations over all states of the seeds in `curves`, for every trained layer.

    Every silhouette is correlated with the first IsoScore, and the first silhouette with every IsoScore. For several
    seeds, `seed_values` holds the correlation within each seed, and the standard error is that of the pooled
    correlation, by the jackknife over seeds. If shuffled labels were trained, `null_values` holds their correlation
    within each seed, and the null value is the mean of these: each seed permutes the labels differently, so pooling
    states across seeds would mix their curves.
    """
    silhouettes, scores = ([name for name in config.measures if kind_of(name) == kind] for kind in KINDS)
    pairs = [(x, y) for x in silhouettes for y in scores if x == silhouettes[0] or y == scores[0]]
    for layer in dict.fromkeys(place.layer for place in curves if place.layer != "output"):
        for pair in pairs:
            x, y = (curves[LayerPlace(name, layer=layer)] for name in pair)
            places = [LayerPlace(name, SHUFFLED, layer) for name in pair]
            null = [curves[place] for place in places if place in curves]
            at = {**config.options(), SEED: seed, "layer": layer, "of": pair[0], "with": pair[1]}
            names = ("pearson", "spearman", "pearson_log")
            for row in trajectories.correlation_rows("classify", x.ravel(), y.ravel(), names, at=at):
                name = row["measure"].partition(".")[2]
                yield row if len(x) == 1 else {**row, **_over_seeds(name, x, y, null)}


def of_seeds(x: Values, y: Values, name: str = "pearson") -> list[float]:
    """Compute a correlation over the states of each seed, leaving out seeds where it is undefined."""
    by_seed = [trajectories.correlations(silhouette, score)[name] for silhouette, score in zip(x, y, strict=True)]
    return [value for value in by_seed if value is not None]


def _over_seeds(name: str, x: Values, y: Values, null: Sequence[Values]) -> Row:
    """Return the fields that a row of several seeds adds to the pooled correlation.

    `null` holds the curves of shuffled labels, or is empty if these were not trained.
    """
    by_seed = of_seeds(x, y, name)
    row: Row = {"seed_values": by_seed}
    without = [
        trajectories.correlations(np.delete(x, seed, axis=0).ravel(), np.delete(y, seed, axis=0).ravel())[name]
        for seed in range(len(x))
    ]
    defined = [value for value in without if value is not None]
    if len(defined) == len(x):
        row["standard_error"] = jackknife(defined)
    shuffled = of_seeds(null[0], null[1], name) if null else []
    if not shuffled:
        return row
    ranges = [f"{min(values):.3f} to {max(values):.3f}" for values in (by_seed, shuffled) if values]
    note = f"{ranges[0]} in single seeds, {ranges[-1]} with shuffled labels (the null)".replace("-", "\N{MINUS SIGN}")
    return row | {"null_values": shuffled, "null_value": statistics.fmean(shuffled), "note": note}


def deviation_rows(config: ClassifyConfig, curves: Curves) -> Iterator[Record]:
    """Compute the standard deviation (n − 1) over seeds of silhouettes, IsoScores, loss and accuracy: the largest and
    the mean over the states."""
    for place, values in curves.items():
        reported = (place.layer == "output" or kind_of(place.measure) in KINDS) and place.examples != SHUFFLED
        if reported and len(values) > 1 and np.isfinite(values).all():
            at = {**config.options(), "of": place.measure, "examples": place.examples, "layer": place.layer}
            spread = values.std(axis=0, ddof=1)
            for name, value in (("largest", spread.max()), ("mean", spread.mean())):
                yield Record(f"classify.{name}_deviation", float(value), n=len(values), at=at)


def size_rows(config: ClassifyConfig, task: ClassificationTask) -> Iterator[Record]:
    parameters = Model(task, config, seed=0).parameter_count
    for name, value in (("examples", len(task.examples)), ("items", len(task.items)), ("parameters", parameters)):
        yield Record(f"classify.{name}", value, at=config.options())


def curves_of(rows: Iterable[Mapping[str, Any]]) -> Curves:
    """Collect the states in these rows, NaN where a number is undefined; seeds keep the order of the rows."""
    return trajectories.curves_by(
        lambda row: LayerPlace(row["measure"], row["at"]["examples"], row["at"]["layer"]), rows
    )


def correlated(measures: Sequence[str]) -> tuple[str, ...]:
    """Return the measures that enter correlations."""
    return tuple(name for name in measures if kind_of(name) in KINDS)


def kind_of(measure: str) -> str:
    """Return the base name of a measure, without the variant in brackets."""
    return measure.partition("[")[0]
