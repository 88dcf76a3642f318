"""ComBat: means and variances of modalities adjusted column by column, with empirical Bayes."""

from typing import Self

import numpy as np

from clip_geometry.transforms.base import Rows, as_blocks, mean_of, register
from clip_geometry.transforms.sets import JointTransform

TOLERANCE = 1e-12  # relative, of the posterior means


@register
class ComBat(JointTransform):
    """Give every modality the means and variances of all of them, column by column (Johnson, Li & Rabinovic 2007).

    Standardized, s = (w − α)/σ: α is the mean of all rows and σ² the variance within the modalities. Of modality m in
    column g, γ̂ is the mean and δ̂² the variance of s. Both are shrunk to what they are in other columns, with a normal
    prior of γ and an inverse gamma prior of δ² whose parameters come from the moments over columns:

        γ* = (n τ² γ̂ + δ*² γ̄)/(n τ² + δ*²),  δ*² = (b + ½ Σ(s − γ*)²)/(n/2 + a − 1),

    solved to 1e-12 (published code stops at 1e-4). Then w ↦ σ (s − γ*)/δ* + α, an affine map. `[text-to-image]` keeps
    images as the reference: α and σ are theirs, and they stay as they are. Columns that do not vary within a modality
    are shifted by their mean. One column alone, or columns whose δ̂² are equal, leave nothing to shrink to. Reads
    streamed rows.

    Attributes:
        mean_: (d,) α.
        location_: (sets, d) α + σγ*.
        spread_: (sets, d) δ*.

    Raises:
        InputError: A modality has fewer than two rows.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import ComBat
        >>> rng = np.random.default_rng(0)
        >>> image, text = rng.normal(size=(200, 6)), 3 * rng.normal(size=(100, 6)) + 5
        >>> moved = [each.transform(x) for each, x in zip(ComBat().fit_sets([image, text]), [image, text])]
        >>> [round(float(x.mean()), 2) for x in moved], [round(float(x.std(0).mean()), 2) for x in moved]
        ([1.64, 1.64], [1.92, 1.92])
    """

    name = "combat"
    summary = "adjusts means and variances of modalities column by column, shrunk over columns (empirical Bayes)"
    formula = "σ ((w − α)/σ − γ*_m)/δ*_m + α"
    onto = True
    mean_: np.ndarray
    location_: np.ndarray
    spread_: np.ndarray

    def fit(self, x: Rows, y: Rows | None = None) -> Self:
        """Learn from source rows x, (n, d), and rows y of the reference, (m, d), which stays as it is."""
        return self._fit([x, y], reference=True)

    def _learn(self, *sets: Rows, reference: bool = False) -> None:
        counts = np.array([len(x) for x in sets])
        means = np.stack([mean_of(x) for x in sets])
        squares = np.stack([_squares(x, mean) for x, mean in zip(sets, means, strict=True)])
        largest = np.abs(means).max(0)
        variances = squares / (counts[:, None] - 1)
        fixed = (variances <= (16 * np.finfo(np.float64).eps * largest) ** 2).any(0)  # the rounding of a constant
        if reference:
            alpha, pooled, moved = means[1], squares[1] / counts[1], 1
        else:
            alpha, pooled, moved = counts @ means / counts.sum(), squares.sum(0) / counts.sum(), len(sets)
        sigma = np.sqrt(np.where(fixed, 1.0, pooled))
        gamma, delta = (means[:moved] - alpha) / sigma, variances[:moved] / sigma**2
        spread = np.ones_like(gamma)
        for k in range(moved if not fixed.all() else 0):
            gamma[k, ~fixed], spread[k, ~fixed] = _posterior(counts[k], gamma[k, ~fixed], delta[k, ~fixed])
        self.mean_, self.location_, self.spread_ = alpha, alpha + sigma * gamma, np.sqrt(spread)

    def _map(self, x: np.ndarray) -> np.ndarray:
        return (x - self.location_[self.set_]) / self.spread_[self.set_] + self.mean_

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        location, spread = self.location_[self.set_], self.spread_[self.set_]
        return np.diag(1 / spread), self.mean_ - location / spread


def _squares(x: Rows, mean: np.ndarray) -> np.ndarray:
    total = np.zeros(len(mean))
    for block in as_blocks(x):
        total += np.square(block - mean).sum(0)
    return total


def _posterior(n: int, gamma: np.ndarray, delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """γ* and δ*² of one modality from the means γ̂ and variances δ̂² of its n standardized rows by column."""
    single = len(gamma) == 1
    prior, tau = gamma.mean(), 0.0 if single else gamma.var(ddof=1)
    mean, variance = delta.mean(), 0.0 if single else delta.var(ddof=1)
    if variance <= (np.finfo(np.float64).eps * mean) ** 2:  # the inverse gamma prior is a point
        return (n * tau * gamma + mean * prior) / (n * tau + mean), np.full_like(delta, mean)
    a, b = 2 + mean**2 / variance, mean * (1 + mean**2 / variance)
    new_gamma, new_delta = gamma, delta
    for _ in range(1000):
        old_gamma, old_delta = new_gamma, new_delta
        new_gamma = (n * tau * gamma + old_delta * prior) / (n * tau + old_delta)
        residual = (n - 1) * delta + n * np.square(gamma - new_gamma)
        new_delta = (b + residual / 2) / (n / 2 + a - 1)
        change = max(np.abs(new_delta / old_delta - 1).max(), np.abs(new_gamma - old_gamma).max())
        if change <= TOLERANCE:
            break
    return new_gamma, new_delta
