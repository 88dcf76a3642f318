"""Distributions of known isotropy, IsoScore of many samples of them at once, and its errors.

The score is plain, corrected, and shrunken for every ζ from the same traces.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from clip_geometry.config import Config
from clip_geometry.results import Record

FACTOR, SHARE = 5.0, 0.1  # of the scale mixture: one row in ten is five times as long

Values = Float[Tensor, " draws"]


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


# --- scores


@dataclass(frozen=True)
class Traces:
    """Traces of the covariances S of many samples, and of the covariance S_0 of a larger sample for each.

    Q = Σ‖w_i − μ‖⁴. Of the mixture M = (1 − ζ) S + ζ S_0 tr M is linear and ‖M‖² quadratic in ζ, so that one pass
    over the rows serves all ζ.
    """

    n: int
    d: int
    trace: Values
    square: Values  # ‖S‖_F²
    fourth: Values  # Q
    trace_0: Values
    square_0: Values
    inner: Values  # ⟨S, S_0⟩

    @classmethod
    def of(cls, x: Float[Tensor, "draws n d"], reference: Float[Tensor, "draws m d"]) -> "Traces":
        centered, s_0 = x - x.mean(1, keepdim=True), covariances(reference)
        lengths = centered.square().sum(2)
        s = centered.mT @ centered / (x.shape[1] - 1)
        return cls(
            *x.shape[1:],
            trace=lengths.sum(1) / (x.shape[1] - 1),
            square=s.square().sum((1, 2)),
            fourth=lengths.square().sum(1),
            trace_0=s_0.diagonal(dim1=1, dim2=2).sum(1),
            square_0=s_0.square().sum((1, 2)),
            inner=(s * s_0).sum((1, 2)),
        )

    def plain(self) -> Values:
        """`isoscore`."""
        return self._score(self.trace**2 / self.square)

    def star(self, zeta: float) -> Values:
        """`isoscore_star`."""
        own = 1 - zeta
        trace = own * self.trace + zeta * self.trace_0
        square = own**2 * self.square + 2 * own * zeta * self.inner + zeta**2 * self.square_0
        return self._score(trace**2 / square)

    def parts(self) -> tuple[Values, Values]:
        """a and b of `isoscore(unbiased=True)`: unbiased estimates of tr(C)² and ‖C‖_F²."""
        n, q = self.n, self.fourth / (self.n - 1)
        f = (n - 1) / (n * (n - 2) * (n - 3))
        a = f * (2 * self.square + (n * n - 3 * n + 1) * self.trace**2 - n * q)
        b = f * ((n - 1) * (n - 2) * self.square + self.trace**2 - n * q)
        return a, b

    def unbiased(self) -> Values:
        """`isoscore(unbiased=True)`; NaN where the estimate of ‖C‖² is not positive and that function refuses."""
        a, b = self.parts()
        return self._score(torch.where(b > 0, a / b, torch.nan))

    def _score(self, ratio: Tensor) -> Tensor:
        return (ratio - 1) / (self.d - 1)


def covariances(x: Float[Tensor, "draws n d"]) -> Float[Tensor, "draws d d"]:
    centered = x - x.mean(1, keepdim=True)
    return centered.mT @ centered / (x.shape[1] - 1)


def together(parts: list[Traces]) -> Traces:
    """Concatenate the draws of several chunks."""
    first = parts[0]
    fields = ("trace", "square", "fourth", "trace_0", "square_0", "inner")
    values = {name: torch.cat([getattr(part, name) for part in parts]) for name in fields}
    return Traces(first.n, first.d, **values)


# --- errors


def error_rows(values: Values, truth: float, /, **fields: Any) -> Iterator[Record]:
    """Bias, standard deviation and root mean square error over the draws, each with its standard error."""
    known = values[values.isfinite()]
    missing = len(values) - len(known)
    left_out = f"undefined in {missing} of {len(values)} draws, left out; " if missing else ""
    fields |= {"note": f"{left_out}± over {len(known)} draws"}
    if len(known) < 2:
        yield Record("stability.bias", None, **fields)
        return
    error = known - truth
    deviation, squared = float(known.std()), error.square()
    # of the standard deviation and of the root by the delta method, from the fourth moment
    around = (known - known.mean()).square()
    found = {
        "bias": (float(error.mean()), deviation / math.sqrt(len(known))),
        "standard_deviation": (deviation, _of_root(around)),
        "rmse": (math.sqrt(float(squared.mean())), _of_root(squared)),
    }
    for name, (value, standard_error) in found.items():
        yield Record(f"stability.{name}", value, standard_error, **fields)


def _of_root(squares: Tensor) -> float:
    """Standard error of the root of a mean, by the delta method."""
    root = math.sqrt(float(squares.mean()))
    return float(squares.std()) / math.sqrt(len(squares)) / (2 * root) if root > 0 else 0.0


def ratio_bias_row(traces: Traces, **fields: Any) -> Record:
    """mean(a/b) − mean(a)/mean(b), as scores, its error by the jackknife over draws."""
    a, b = traces.parts()
    scores = traces.unbiased()
    if not scores.isfinite().all():
        return Record("stability.ratio_bias", None, **fields, note="the corrected score is undefined in some draws")
    n, d = len(scores), traces.d
    without = ((a.sum() - a) / (b.sum() - b) - 1) / (d - 1)
    left = (scores.sum() - scores) / (n - 1) - without
    error = math.sqrt((n - 1) / n * float((left - left.mean()).square().sum()))
    value = float(scores.mean() - (a.mean() / b.mean() - 1) / (d - 1))
    return Record("stability.ratio_bias", value, error, **fields, note=f"± by the jackknife over {n} draws")
