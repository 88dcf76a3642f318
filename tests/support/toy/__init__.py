"""A whole experiment in one folder: how the shift of a Gaussian makes a cone of it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import Field

from clip_geometry.display.style import styled
from clip_geometry.display.words import Words
from clip_geometry.geometry import average_cosine
from clip_geometry.results import Row
from clip_geometry_experiments.kit.base import Cell, Experiment, RunConfig, experiments, read_explanations
from clip_geometry_experiments.report.figures import Drawing, new_axes

HERE = Path(__file__).parent
WORDS = Words(HERE / "words.j2")


class ToyConfig(RunConfig):
    """shifts: Distances of the mean from 0. n, d: Size of the samples."""

    shifts: tuple[float, ...] = Field(min_length=1)
    n: int = Field(default=200, ge=2)
    d: int = Field(default=16, ge=1)


class Toy(Experiment):
    Config = ToyConfig
    summary = "the average cosine of a Gaussian whose mean moves away from 0"
    explanations = read_explanations(HERE / "numbers.yaml")

    def cells(self) -> Iterator[Cell]:
        size = {"n": self.config.n, "d": self.config.d, "seed": self.config.seed}
        for shift in self.config.shifts:
            yield Cell({"experiment": "toy", "shift": shift, **size}, partial(self._rows, shift))

    def _rows(self, shift: float) -> list[Row]:
        rows = np.random.default_rng(self.config.seed).normal(size=(self.config.n, self.config.d))
        rows[:, 0] += shift
        value = float(average_cosine(rows))
        at = {"shift": shift}
        return [{"measure": "toy.cosine", "value": value, "standard_error": None, "n": len(rows), "at": at}]

    @classmethod
    def sentences(cls, planned: Sequence["Toy"]) -> list[str]:
        first, *_, last = planned[0].finished_rows()
        return [WORDS("cone", shift=last["at"]["shift"], first=first["value"], last=last["value"])]

    def drawings(self) -> Mapping[str, Drawing]:
        return {"toy": Drawing("A shifted Gaussian", _figure(self.finished_rows()), WORDS("caption"))}


@styled
def _figure(rows: Sequence[Row]):
    figure, axes = new_axes()
    axes.plot([row["at"]["shift"] for row in rows], [row["value"] for row in rows], marker="o")
    axes.set(xlabel="shift of the mean", ylabel="average cosine")
    return figure


experiments.add("toy", Toy)
