"""IsoScore of many samples at once: plain, corrected, and shrunken for every ζ from the same traces."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Values = Float[Tensor, " draws"]


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
        centred, s_0 = x - x.mean(1, keepdim=True), covariances(reference)
        lengths = centred.square().sum(2)
        s = centred.mT @ centred / (x.shape[1] - 1)
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

    def ratio_of_means(self) -> Float[Tensor, ""]:
        """The corrected score with a and b averaged over the draws before the division: without ratio bias."""
        a, b = self.parts()
        return self._score(a.mean() / b.mean())

    def _score(self, ratio: Tensor) -> Tensor:
        return (ratio - 1) / (self.d - 1)


def covariances(x: Float[Tensor, "draws n d"]) -> Float[Tensor, "draws d d"]:
    centred = x - x.mean(1, keepdim=True)
    return centred.mT @ centred / (x.shape[1] - 1)


def together(parts: list[Traces]) -> Traces:
    """Concatenate the draws of several chunks."""
    first = parts[0]
    fields = ("trace", "square", "fourth", "trace_0", "square_0", "inner")
    values = {name: torch.cat([getattr(part, name) for part in parts]) for name in fields}
    return Traces(first.n, first.d, **values)
