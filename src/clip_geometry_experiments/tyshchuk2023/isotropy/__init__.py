"""I1 and I2 in every convention, including bases unrelated to the data (Tyshchuk et al. 2023, Table 1, Figures 2-4)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from scipy.stats import ortho_group

from clip_geometry.display.numbers import fixed, plus_minus
from clip_geometry.display.words import Words
from clip_geometry.geometry.isotropy import partition_over
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.results import Row
from clip_geometry.rows.matrix import as_rows, mean_row
from clip_geometry_experiments.kit.base import Cell, experiments
from clip_geometry_experiments.kit.geometry import GeometryConfig, GeometryExperiment


class IsotropyConfig(GeometryConfig):
    """Config of the experiment `isotropy`, in addition to the keys of `GeometryConfig`.

    Args:
        random_bases: Number of random orthonormal bases over which I1 and I2 are also computed, at least 2.
    """

    random_bases: int = Field(default=20, ge=2)
    split: None = None  # pyright: ignore[reportIncompatibleVariableOverride]


class Isotropy(GeometryExperiment):
    Config = IsotropyConfig

    def cells(self) -> Iterator[Cell]:
        yield from super().cells()
        bases = self.config.random_bases
        define = {"measure": "random bases", "bases": bases, **self.settings()}
        yield Cell(define, partial(self._random_bases_rows, bases), f"{bases} random bases")

    @cached_property
    def drawn(self) -> MeasuredSets:
        """The sets before their last normalization, which only I1 and I2 need; Figures 3 and 4 omit it."""
        steps = self.sets.steps
        if len(steps) < 2 or steps[-1].name != "normalize":
            return self.sets
        return MeasuredSets(self.sets.embeddings, steps[:-1], seed=self.config.seed, blocks=0)

    @classmethod
    def sentences(cls, planned: Sequence[Any]) -> list[str]:
        """Compare I1 of the first pipeline, as defined and as published, with random bases; then list the others."""
        words = Words(Path(__file__).with_name("words.j2"))
        runs = []
        for run in planned:
            rows = {
                (row["measure"], row["at"]["modality"]): row for row in run.finished_rows() if row["value"] is not None
            }
            values = {key: plus_minus(row["value"], row.get("standard_error")) for key, row in rows.items()}
            runs.append((" → ".join(map(str, run.sets.steps)), values, rows))
        (_, values, rows), *others = runs
        sets = list(planned[0].sets.rows)
        i1 = [rows["isotropy_i1", modality] for modality in sets if ("isotropy_i1", modality) in rows]
        if len(i1) < len(sets):
            return []
        nulls = list(dict.fromkeys(fixed(row["null_value"], 2) for row in i1))
        sentences = [words("defined", values, sets, nulls, _isotropy_words(i1)), words("means", values, sets)]
        return sentences + ([words("others", others, sets)] if others else [])

    def drawings(self) -> Mapping[str, Any]:
        """Draw the figures; as in Figures 2-4, singular directions are shown for the images alone."""
        alone = "image" if "image" in self.drawn.rows else None
        drawn = {}
        for name in self.config.figures:
            drawn |= self.draw(self.drawn, (name,), only=alone if name == "singular_directions" else None)
        return drawn

    def settings(self) -> dict[str, Any]:
        return {key: value for key, value in super().settings().items() if key != "random_bases"}

    def _random_bases_rows(self, bases: int) -> list[Row]:
        """Compute I1 and I2 over bases unrelated to the rows, and the value that I2 estimates there."""
        shared = self.sets.context()
        rows = []
        for modality, x in self.sets.rows.items():
            n, d = x.shape
            rng = np.random.default_rng(self.config.seed)
            partitions = [partition_over(x, ortho_group.rvs(d, random_state=rng)) for _ in range(bases)]
            length = float(mean_row(as_rows(x)).norm()) / math.sqrt(d)
            values = {
                "isotropy_i1[random]": [float(partition.i1) for partition in partitions],
                "isotropy_i2[random]": [float(partition.i2) for partition in partitions],
                "isotropy_i2[mean]": [length],
            }
            for measure, by_basis in values.items():
                note = "‖mean‖/√d, which is I2 of any basis unrelated to the data"
                if len(by_basis) > 1:
                    scatter = np.std(by_basis, ddof=1)
                    note = f"mean of {len(by_basis)} random orthonormal bases, which scatter by {scatter:.4f}"
                row = {"measure": measure, "value": float(np.mean(by_basis)), "note": note}
                rows.append({**shared, **row, "n": n, "d": d, "at": {"modality": modality}})
        return rows


experiments.add("isotropy", Isotropy)


def _isotropy_words(rows: Sequence[Row]) -> str:
    """Say whether I1 is below half its null value in all sets, below it by more than two standard errors, or
    neither."""
    if all(row["value"] < row["null_value"] / 2 for row in rows):
        return "far from isotropic"
    below = all(row["value"] + 2 * (row.get("standard_error") or 0) < row["null_value"] for row in rows)
    return "less isotropic than noise" if below else "not all less isotropic than noise"
