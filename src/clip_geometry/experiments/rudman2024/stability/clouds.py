"""Distributions of known isotropy."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from clip_geometry.config import Config

FACTOR, SHARE = 5.0, 0.1  # of the scale mixture: one row in ten is five times as long


class CloudConfig(Config):
    """Rows with covariance ∝ diag(i^−decay), in any basis: the scores are invariant to rotations.

    Args:
        name: In the report.
        decay: Exponent of the spectrum; 0 for an isotropic distribution.
        heavy_tailed: A scale mixture, each row multiplied by 5 with probability 1/10 (kurtosis of a coordinate 16.5);
            otherwise Gaussian.
    """

    name: str = Field(pattern=r"^[\w ,.()/-]+$")
    decay: float = Field(default=0.0, ge=0)
    heavy_tailed: bool = False


@dataclass(frozen=True)
class Cloud:
    """The distribution in d dimensions."""

    config: CloudConfig
    d: int

    @property
    def variances(self) -> Float[Tensor, " d"]:
        """Variances of the coordinates, without the common factor of a scale mixture, which no score depends on."""
        return torch.arange(1, self.d + 1, dtype=torch.float64) ** -self.config.decay

    @property
    def isoscore(self) -> float:
        """The true score, of the covariance itself."""
        v = self.variances
        return float((v.sum() ** 2 / v.square().sum() - 1) / (self.d - 1))

    def draw(self, draws: int, n: int, rng: np.random.Generator) -> Float[Tensor, "draws n d"]:
        """Independent samples of n rows, float64."""
        rows = torch.from_numpy(rng.standard_normal((draws, n, self.d))) * self.variances.sqrt()
        if self.config.heavy_tailed:
            rows *= torch.from_numpy(np.where(rng.random((draws, n, 1)) < SHARE, FACTOR, 1.0))
        return rows
