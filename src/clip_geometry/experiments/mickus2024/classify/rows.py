"""From the states of a training to result rows, and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from clip_geometry.experiments.mickus2024.classify.config import ClassifyConfig, known_measure
from clip_geometry.experiments.mickus2024.classify.numbers import KINDS, compared, correlations, deviations
from clip_geometry.experiments.mickus2024.classify.task import Loaded
from clip_geometry.experiments.mickus2024.classify.training import Place
from clip_geometry.results import Row

SEED = "classifier.seed"  # of the first weights; a row's own `seed` is that of samples and of what is held out

Curves = dict[Place, np.ndarray]  # of each place, (seeds, states)


def state_row(config: ClassifyConfig, loaded: Loaded, place: Place, values: Sequence[float], seed: int) -> Row:
    """All states of one number in one row: `trajectory`, null where it is not defined; the row's value is the last."""
    told = [float(value) if np.isfinite(value) else None for value in values]
    n, d = _size(config, loaded, place)
    at = {**config.options(), SEED: seed, "examples": place.examples, "layer": place.layer}
    row = {"measure": place.measure, "value": told[-1], "standard_error": None, "n": n, "d": d}
    if place.examples == "held out" and place.layer == "input":
        return {**row, "at": {**at, "update": 0}, "note": "nothing trains these rows: the same in all states"}
    row |= {"at": {**at, "update": config.updates}, "trajectory": told, "every": config.measure_every}
    return row if told[-1] is not None else {**row, "note": "not defined in the last state"}


def _size(config: ClassifyConfig, loaded: Loaded, place: Place) -> tuple[int, int | None]:
    problem = loaded.trained if place.examples == "trained" else loaded.unseen
    assert problem is not None  # there is no such place otherwise
    if place.layer == "output":
        return len(problem.examples), None
    unpaired = place.layer == "input" and known_measure(place.measure).takes == "rows"
    n = len(problem.items if unpaired else problem.examples)
    d = problem.items.shape[1] if unpaired else problem.width
    return min(n, config.sample or n), d if place.layer == "input" else config.hidden


def correlation_rows(config: ClassifyConfig, curves: Curves, seed: int | str) -> Iterator[Row]:
    """Of all states of these seeds together, in every layer that is trained."""
    for layer in dict.fromkeys(place.layer for place in curves if place.layer != "output"):
        for silhouette, score in compared(config.measures):
            x, y = (curves[Place(name, layer=layer)].ravel() for name in (silhouette, score))
            at = {**config.options(), SEED: seed, "layer": layer, "of": silhouette, "with": score}
            for name, value in correlations(x, y):
                row = {"measure": name, "value": value, "standard_error": None, "n": len(x), "at": at}
                yield row if value is not None else {**row, "note": "one of them is constant or not defined"}


def deviation_rows(config: ClassifyConfig, curves: Curves) -> Iterator[Row]:
    """Of silhouettes, IsoScores, loss and accuracy."""
    for place, values in curves.items():
        told = place.layer == "output" or place.measure.partition("[")[0] in KINDS
        if told and len(values) > 1 and np.isfinite(values).all():
            at = {**config.options(), "of": place.measure, "examples": place.examples, "layer": place.layer}
            for name, value in deviations(values).items():
                yield {"measure": name, "value": value, "standard_error": None, "n": len(values), "at": at}


def size_rows(config: ClassifyConfig, sizes: Mapping[str, int]) -> Iterator[Row]:
    for name, value in sizes.items():
        yield {"measure": f"classify.{name}", "value": value, "standard_error": None, "at": config.options()}


def curves_of(rows: Iterable[Mapping[str, Any]]) -> Curves:
    """The states in these rows, NaN where a number is not defined; seeds in the order of the rows."""
    found: dict[Place, list[list[float]]] = {}
    for row in rows:
        if "trajectory" in row:
            place = Place(row["measure"], row["at"]["examples"], row["at"]["layer"])
            values = [float("nan") if value is None else value for value in row["trajectory"]]
            found.setdefault(place, []).append(values)
    return {place: np.array(values) for place, values in found.items()}
