"""Maps fitted on half of the classes, scored on both halves (Tyshchuk et al. 2023, Table 4)."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from clip_geometry.measuring.provenance import origin_of
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.transforms import Pipeline
from clip_geometry_experiments.kit.base import experiments, read_explanations
from clip_geometry_experiments.kit.maps import MapConfig, ProbeExperiment, PromptedConfig
from clip_geometry_experiments.tyshchuk2023.generalization.class_generalization import class_generalization


class GeneralizationConfig(PromptedConfig):
    """Config of the experiment `generalization`. A map's fit_on is "train": the known classes of that split.

    Args:
        known: Share of the classes that maps are fitted on.
        draws: Number of random choices of these classes. The numbers are those of the first (draw 0, as published)
            and, of several, their means.
    """

    ROLES: ClassVar = ("train",)
    SCORED: ClassVar = ("train", "test")

    known: float = Field(default=0.5, gt=0, lt=1)
    draws: int = Field(default=5, ge=1)


class Generalization(ProbeExperiment):
    Config = GeneralizationConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))
    drawn: ClassVar = {"class_generalization.known": "known classes", "class_generalization.new": "new classes"}
    in_brief: ClassVar = {
        "class_generalization.new": "zero-shot accuracy on new classes",
        "class_generalization.known": "zero-shot accuracy on known classes",
    }

    def rows(self, each: MapConfig) -> list[Row]:
        config = self.config
        (fit_x, _), (image, text) = self.labeled("train"), self.labeled("test")
        labels = np.asarray(text.labels)
        if len(np.unique(labels)) < len(labels):
            raise InputError("generalization takes one prompt per class, and the probe has several; give one prompt")
        order = np.argsort(labels)  # row k of the texts is class k
        found = [
            class_generalization(
                Pipeline(each.pipeline),
                fit_x.vectors,
                fit_x.labels,
                image.vectors,
                image.labels,
                text.vectors[order],
                known=config.known,
                seed=config.seed + draw,
            )
            for draw in range(config.draws)
        ]
        fitted_on = f"{origin_of({'image': fit_x})}: images and prompts of known classes" if each.learns else None

        def rows_of(draws: Sequence[Mapping[str, float]]) -> list[Row]:
            numbers = [name.partition(".")[2] for name in self.explanations]
            means = {key: float(np.mean([scores[key] for scores in draws])) for key in numbers}
            rows = self.share_rows(each, "class_generalization", means, {"image": image, "text": text}, fitted_on)
            return [_over_draws(row, draws) for row in rows]

        first: list[Row] = [{**row, "at": {**row["at"], "draw": 0}} for row in rows_of(found[:1])]
        return first + (rows_of(found) if len(found) > 1 else [])


def _over_draws(row: Row, found: Sequence[Mapping[str, float]]) -> Row:
    """With the standard error of a mean over draws of the known classes, all of which share the test images.

    s²/draws + p(1 − p)/n over the n test images; of one draw p(1 − p)/m over its own m images.
    """
    number = row["measure"].partition(".")[2]
    p, n, draws = row["value"], row["n"], len(found)
    # how many test images the number is the share of
    known = float(np.mean([scores["known_images"] for scores in found]))
    images = {"all": float(n), "known": known, "new": n - known}[number.partition("_")[0]]
    if draws < 2:
        error, note = math.sqrt(p * (1 - p) / images), "one draw of the known classes; ± is of the images"
    else:
        spread = float(np.std([scores[number] for scores in found], ddof=1))
        error = math.sqrt(spread**2 / draws + p * (1 - p) / n)
        note = f"mean of {draws} draws of the known classes, which scatter by {spread:.4f}"
    return {**row, "standard_error": error, "n": round(images), "note": note}


experiments.add("generalization", Generalization)
