"""Errors of isotropy estimates from few rows with known isotropy (Rudman & Eickhoff 2024, Figure 4)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from clip_geometry.config import Config
from clip_geometry.geometry import isoscore, isoscore_star
from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.registry import InputError, library_versions
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit.base import Cell, Experiment, RunConfig, distinct, experiments, read_explanations
from clip_geometry_experiments.kit.training import context
from clip_geometry_experiments.rudman2024.stability.figures import draw_stability, tell

FACTOR, SHARE = 5.0, 0.1  # scale mixture: one row in ten is five times as long

Values = Float[Tensor, " draws"]


class CloudConfig(Config):
    """Rows with covariance ∝ diag(i^−decay), in any basis, since the scores are invariant to rotations.

    Args:
        name: Name in the report.
        decay: Exponent of the spectrum, ≥ 0; 0 is an isotropic distribution.
        heavy_tailed: Whether to draw from a scale mixture, in which each row is multiplied by 5 with probability 1/10
            (the kurtosis of a coordinate is 16.5), instead of a Gaussian.
    """

    name: str = Field(pattern=r"^[\w ,.()/-]+$")
    decay: float = Field(default=0.0, ge=0)
    heavy_tailed: bool = False

    def variances(self, d: int) -> Float[Tensor, " d"]:
        """Return the variances of the coordinates, up to the common factor of a scale mixture, which scores ignore."""
        return torch.arange(1, d + 1, dtype=torch.float64) ** -self.decay

    def isoscore(self, d: int) -> float:
        """Return the true score, computed from the covariance itself."""
        v = self.variances(d)
        return float((v.sum() ** 2 / v.square().sum() - 1) / (d - 1))

    def draw(self, draws: int, n: int, d: int, rng: np.random.Generator) -> Float[Tensor, "draws n d"]:
        """Draw independent samples of n rows, as float64."""
        rows = torch.from_numpy(rng.standard_normal((draws, n, d))) * self.variances(d).sqrt()
        if self.heavy_tailed:
            rows *= torch.from_numpy(np.where(rng.random((draws, n, 1)) < SHARE, FACTOR, 1.0))
        return rows


def scores_of(x: Float[Tensor, "n d"], reference: Float[Tensor, "m d"], zetas: Sequence[float]) -> list[float]:
    """Return the IsoScore of rows: plain, unbiased (NaN if undefined), and IsoScore* for each ζ, shrunk toward the
    covariance of the reference."""
    moments = Moments.of(x)
    covariance = torch.cov(reference.T)
    try:
        unbiased = float(isoscore(moments, unbiased=True))
    except InputError:
        unbiased = math.nan
    return [
        float(isoscore(moments)), unbiased, *(float(isoscore_star(moments, covariance, zeta=zeta)) for zeta in zetas)
    ]  # fmt: skip


# --- errors


def error_rows(values: Values, truth: float, /, **fields: Any) -> Iterator[Record]:
    """Yield bias, standard deviation and root mean square error over the draws, each with its standard error."""
    known = values[values.isfinite()]
    missing = len(values) - len(known)
    left_out = f"undefined in {missing} of {len(values)} draws, left out; " if missing else ""
    fields |= {"note": f"{left_out}± over {len(known)} draws"}
    if len(known) < 2:
        yield Record("stability.bias", None, **fields)
        return
    error = known - truth
    squared = error.square()
    deviation = float(known.std())
    # errors of the standard deviation and the RMSE use the delta method and the fourth moment
    squared_deviations = (known - known.mean()).square()
    numbers = {
        "bias": (float(error.mean()), deviation / math.sqrt(len(known))),
        "standard_deviation": (deviation, _of_root(squared_deviations)),
        "rmse": (math.sqrt(float(squared.mean())), _of_root(squared)),
    }
    for name, (value, standard_error) in numbers.items():
        yield Record(f"stability.{name}", value, standard_error, **fields)


def _of_root(squares: Tensor) -> float:
    """Return the standard error of the root of a mean, by the delta method."""
    root = math.sqrt(float(squares.mean()))
    return float(squares.std()) / math.sqrt(len(squares)) / (2 * root) if root > 0 else 0.0


CHUNK = 2**22  # maximum number of sample entries in memory at once: 32 MB
PLAIN, UNBIASED, STAR = "isoscore", "isoscore[unbiased]", "isoscore_star"


class StabilityConfig(RunConfig):
    """Config of the experiment `stability`.

    Args:
        clouds: Distributions of known isotropy, at least one.
        d: Dimension, at least 2.
        sizes: Numbers of rows n, each at least 4.
        draws: Number of independent samples of each size, at least 2.
        zetas: Values of ζ of IsoScore*, in [0, 1].
        reference_rows: Number of rows in the larger sample from which C_0 is computed; it is drawn again for each
            sample.
        table_sizes: Sizes shown in the table of the report; the sentences describe the first one.
        table_zetas: Values of ζ shown in the table and in the second figure.
    """

    clouds: Annotated[tuple[CloudConfig, ...], Field(min_length=1), distinct("clouds", "name")]
    d: int = Field(default=128, ge=2)
    sizes: tuple[Annotated[int, Field(ge=4)], ...] = Field(
        default=(8, 16, 32, 64, 128, 256, 512, 1024, 2048), min_length=1
    )
    draws: int = Field(default=200, ge=2)
    zetas: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        default=tuple(k / 10 for k in range(11)), min_length=1
    )
    reference_rows: int = Field(default=2048, ge=2)
    table_sizes: tuple[int, ...] = Field(default=(64, 512), min_length=1)
    table_zetas: tuple[float, ...] = Field(default=(0.2, 0.8), min_length=1)

    @model_validator(mode="after")
    def _known(self) -> Self:
        """Check that the sizes and zetas of the table are measured."""
        for key, known in (("sizes", self.sizes), ("zetas", self.zetas)):
            unknown = set(getattr(self, f"table_{key}")) - set(known)
            if unknown:
                raise InputError(f"table_{key} has {min(unknown)}, which is not one of the {key} {list(known)}")
        return self


class Stability(Experiment):
    Config = StabilityConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))

    def cells(self) -> Iterator[Cell]:
        config = self.config
        keys = ("experiment", "d", "draws", "zetas", "reference_rows", "seed")
        settings = config.model_dump(mode="json")
        shared = {key: settings[key] for key in keys} | {"version": library_versions()["clip-geometry"]}
        for cloud in config.clouds:
            for n in config.sizes:
                define = {"measure": "stability", "cloud": cloud.model_dump(mode="json"), "n": n, **shared}
                yield Cell(define, partial(self._rows, cloud, n), f"{n} rows")

    def _rows(self, cloud: CloudConfig, n: int) -> list[Row]:
        """Return the errors of each estimator of IsoScore for samples of n points of a cloud."""
        config = self.config
        estimates = [(PLAIN, None), (UNBIASED, None), *((STAR, zeta) for zeta in config.zetas)]
        options = cloud.model_dump(mode="json", exclude={"name"})
        truth = cloud.isoscore(config.d)
        shared = {
            **context(cloud.name, None, options, config.seed, model=None, dtype="float64"),
            "n": n,
            "d": config.d,
            "draws": config.draws,
            "truth": truth,
        }
        rows: list[Row] = []
        for (estimator, zeta), values in zip(estimates, self.scores(cloud, n).T, strict=True):
            at = {"estimator": estimator} if zeta is None else {"estimator": estimator, "zeta": zeta}
            more = {} if zeta is None else {"reference_rows": config.reference_rows}
            rows += error_rows(values, truth, **shared, **more, at=at)
        return rows

    def scores(self, cloud: CloudConfig, n: int) -> Tensor:
        """Return scores (draws, estimates), computed a few draws at a time.

        Each size has its own generator, so cells are independent.
        """
        config = self.config
        rng = np.random.default_rng([config.seed, n, config.d])
        chunk = max(1, CHUNK // (config.d * max(n, config.reference_rows)))
        scores = []
        for start in range(0, config.draws, chunk):
            count = min(chunk, config.draws - start)
            samples = cloud.draw(count, n, config.d, rng)
            references = cloud.draw(count, config.reference_rows, config.d, rng)
            scores += [scores_of(x, rows, config.zetas) for x, rows in zip(samples, references, strict=True)]
        return torch.tensor(scores, dtype=torch.float64)

    def tabled(self, row: Row) -> bool:
        """Show only some sizes and ζ in the table; the figures show the hundreds of others."""
        config = self.config
        return row["n"] in config.table_sizes and row["at"].get("zeta", config.table_zetas[0]) in config.table_zetas

    @classmethod
    def sentences(cls, planned: "Sequence[Stability]") -> list[str]:
        config = planned[0].config
        return tell(planned[0].finished_rows(), config.table_sizes[0], config.table_zetas) if len(planned) == 1 else []

    def drawings(self) -> Mapping[str, Any]:
        return draw_stability(self.finished_rows(), self.config.table_zetas)

    def origin(self) -> str:
        config = self.config
        return (
            f"{config.draws} draws of each size, d = {config.d}; C_0 of {config.reference_rows} other rows of the same "
            f"cloud, drawn again for each sample; no model, no pipeline, seed {config.seed}."
        )


experiments.add("stability", Stability)
