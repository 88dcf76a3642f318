"""Distributions of known isotropy, IsoScore estimates from their samples, and the errors of the estimates."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from clip_geometry.config import Config
from clip_geometry.geometry import isoscore, isoscore_star
from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.registry import InputError
from clip_geometry.results import Record

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
