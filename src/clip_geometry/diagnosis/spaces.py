"""First and second moments of rows: whether two sets share a space, and noise that is like a set."""

import math
from typing import NamedTuple

import numpy as np
import torch

from clip_geometry.geometry._core.rows import BLOCK, total


class Overlap(NamedTuple):
    """Overlap of two second moments: 1 for equal ones, 0 on average after a random rotation.

    z: in standard deviations under a random rotation, whatever the spectra.
    """

    value: float
    z: float


def overlap(a: np.ndarray, b: np.ndarray) -> Overlap:
    """Overlap of the second moments of two sets of rows, (n, d) and (m, d), about the origin.

    With A = aᵀa/n and B = bᵀb/m, both less their trace part: ⟨A, B⟩/(‖A‖‖B‖). Under a random rotation Q, ⟨A, QBQᵀ⟩ has
    mean 0 and variance 2‖A‖²‖B‖²/((d − 1)(d + 2)), by the moments of the Haar measure. ‖A‖ is taken from two halves of
    the rows, since the noise of few rows would lengthen it.
    """
    d = a.shape[1]
    product = (traceless(a) * traceless(b)).sum()
    plain = math.sqrt((traceless(a) ** 2).sum() * (traceless(b) ** 2).sum())
    own = [max((traceless(x[::2]) * traceless(x[1::2])).sum(), 0.0) for x in (a, b)]
    length = math.sqrt(own[0] * own[1])
    z = product / plain * math.sqrt((d - 1) * (d + 2) / 2) if plain > 0 and d > 1 else 0.0
    return Overlap(float(product / length) if length > 0 else 0.0, float(z))


def traceless(x: np.ndarray) -> np.ndarray:
    """xᵀx/n less its mean eigenvalue, in float64."""
    x = np.asarray(x, dtype=np.float64)
    moment = x.T @ x / len(x)
    moment[np.diag_indices_from(moment)] -= np.trace(moment) / len(moment)
    return moment


class Gaussian(NamedTuple):
    """The mean of unit rows and a root of their covariance: noise of `draw` has both, and is of length 1."""

    mean: torch.Tensor
    root: torch.Tensor

    @classmethod
    def of(cls, rows: np.ndarray) -> "Gaussian":
        x = torch.from_numpy(rows)
        mean = x.mean(0)
        if len(x) <= x.shape[1]:  # fewer rows than dimensions are a root themselves
            return cls(mean, (x - mean) / len(x) ** 0.5)
        covariance = total((block := part.double() - mean).T @ block for part in x.split(BLOCK)) / len(x)
        values, vectors = torch.linalg.eigh(covariance)
        return cls(mean, (vectors * values.clamp(min=0).sqrt()).T.float())

    def draw(self, n: int, generator: torch.Generator) -> np.ndarray:
        noise = torch.empty((n, self.root.shape[1]))
        for block in noise.split(BLOCK):
            torch.addmm(self.mean, torch.randn((len(block), len(self.root)), generator=generator), self.root, out=block)
            block /= block.norm(dim=1, keepdim=True)
        return noise.numpy()
