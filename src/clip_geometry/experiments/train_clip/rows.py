"""Result rows of a training."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from clip_geometry.data.base import DatasetConfig
from clip_geometry.experiments.kit import trajectories
from clip_geometry.experiments.kit.clip_training import ZERO_SHOT
from clip_geometry.experiments.kit.training import FULL
from clip_geometry.experiments.train_clip.config import PENALTIES, TrainClipConfig
from clip_geometry.experiments.train_clip.data import Pairs
from clip_geometry.experiments.train_clip.geometry import PIPELINE, Place, known
from clip_geometry.results import Row
from clip_geometry.versions import library_versions

COMPARED = (("silhouette", "isoscore"), ("modality_gap", "isoscore"), ("modality_gap", "silhouette"))
CHANGES = ("modality_gap", "isoscore", "isoscore[unbiased]", "silhouette", "average_cosine")
MODALITIES = ("image", "text")

Curves = Mapping[Any, np.ndarray]  # of each Place, (states,), NaN where it is undefined


def context(config: TrainClipConfig, data: DatasetConfig, trained_in: str) -> Row:
    """The fields that all rows of a data set share. trained_in: the precision."""
    model_options = {} if config.batch_norm == "eval" else {"batch_norm": config.batch_norm}
    options = data.model_dump(mode="json", serialize_as_any=True, exclude_defaults=True, exclude={"name", "split"})
    return {
        "model": "trained here",
        "model_options": model_options | ({} if trained_in == FULL else {"trained_in": trained_in}),
        "dataset": data.name,
        "data_options": options,
        "split": data.split,
        "dtype": "float32",
        "pipeline": list(PIPELINE),
        "fitted_on": None,
        "seed": config.seed,
        "versions": library_versions(),
    }


def at_arm(config: TrainClipConfig) -> Row:
    """For the `at` of rows: the arm, and the weight and tower of its penalty."""
    if config.arm not in PENALTIES:
        return {"arm": config.arm}
    return {"arm": config.arm, "penalty": config.penalty, "tower": config.tower}


def state_rows(
    config: TrainClipConfig,
    measured: Pairs,
    seen: np.ndarray,
    states: Mapping[Place, Sequence[float]],
    steps: list[int],
) -> Iterator[Row]:
    """All states of a number in one row: `trajectory` at `steps`, None where it is undefined; its value is the last."""
    for place, values in states.items():
        curve = trajectories.trajectory(values)
        at = {**at_arm(config), "step": steps[-1], **_where(place)}
        n, d = _size(place, measured, seen, config.architecture["embed_dim"])
        row = {"measure": place.measure, "value": curve[-1], "standard_error": None, "n": n, "d": d, "at": at}
        row |= {"trajectory": curve, "steps": steps}
        if place.measure == ZERO_SHOT:
            row["null_value"] = 1 / len(measured.class_names)
        yield row if curve[-1] is not None else {**row, "note": "not defined in the last state"}


def _where(place: Place) -> Row:
    return {"modality": place.modality} | ({} if place.classes == "all" else {"classes": place.classes})


def _size(place: Place, pairs: Pairs, seen: np.ndarray, width: int) -> tuple[int, int | None]:
    if place.measure == ZERO_SHOT:
        known_class = np.isin(pairs.labels, seen)
        return int((known_class if place.classes == "seen" else ~known_class).sum()), width
    if place.measure.startswith("train_clip."):
        return len(pairs), None
    return len(pairs) * (2 if known(place.measure).takes == "two sets" else 1), width


def tested_rows(
    config: TrainClipConfig, tested: Pairs, seen: np.ndarray, values: Mapping[Place, float]
) -> Iterator[Row]:
    """Zero-shot accuracy of the saved model, with its standard error."""
    for place, value in values.items():
        n, d = _size(place, tested, seen, config.architecture["embed_dim"])
        at = {**at_arm(config), "step": config.steps, **_where(place), "pictures": "tested"}
        error = math.sqrt(value * (1 - value) / n)
        row = {"measure": place.measure, "value": value, "standard_error": error, "n": n, "d": d, "at": at}
        yield {**row, "null_value": 1 / len(tested.class_names)}


def loss_row(config: TrainClipConfig, losses: Sequence[float], steps: list[int]) -> Row:
    """Mean loss of the training batches between two measured states; None at the first."""
    means = trajectories.means_between(losses, steps)
    row = {"measure": "train_clip.training_loss", "value": means[-1], "standard_error": None, "n": None, "d": None}
    at = {**at_arm(config), "step": steps[-1]}
    return {**row, "pipeline": [], "at": at, "trajectory": means, "steps": steps}


def change_rows(config: TrainClipConfig, curves: Curves) -> Iterator[Row]:
    """Differences between the last and the first state, and correlations over the states.

    After the first states, which are at powers of two, the states are evenly spaced, and every state counts alike.
    """
    for name in CHANGES:
        for place in (Place(*key) for key in curves if key[0] == name):
            values = curves[place]
            at = {**at_arm(config), "of": name, **_where(place)}
            row = {"measure": "train_clip.change", "value": float(values[-1] - values[0]), "standard_error": None}
            if np.isfinite(values[[0, -1]]).all():
                yield {**row, "n": len(values), "d": None, "at": at}
    for (first, second), modality in product(COMPARED, MODALITIES):
        x, y = (curves.get(Place(name, modality), curves.get(Place(name))) for name in (first, second))
        if x is not None and y is not None:
            at = {**at_arm(config), "of": first, "with": second, "modality": modality}
            yield from trajectories.correlation_rows("train_clip", x, y, d=None, at=at)
