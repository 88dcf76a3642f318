"""ReAlign: the mean and the spread of one modality set to those of another, without pairs."""

from typing import Any, Literal

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import flag
from clip_geometry.transforms.base import OntoTransform, Rows, as_blocks, mean_of, register
from clip_geometry.transforms.elementary import Normalize


@register
class ReAlign(OntoTransform):
    """Move source rows onto the mean and the total variance of target rows (Yu et al. 2026, arXiv:2602.07026).

    Anchor and trace: w̃ = μ_x + s(w − μ_y) with s = √(tr Σ_x / tr Σ_y), where μ and Σ are the mean and the covariance of
    the target (x) and of the source (y), each divided by its number of rows. Centroid: on the sphere the mean has moved
    again, so unit rows e′ = w̃/‖w̃‖ of mean μ′ become e′ − μ′ + μ_x, of unit length. Rows have to be unit length before:
    write normalize first. Equal sets of unit rows give the identity. Reads streamed rows.

    Args:
        centroid: Whether the rows are put on the sphere and centered there; without, the map is affine, as in the
            authors' code, and means and total variances of the fitting sets agree exactly.

    Attributes:
        mean_, target_mean_: (d,) μ_y and μ_x.
        scale_: s.
        centroid_: (d,) μ′; μ_x without `centroid`.

    Raises:
        InputError: The source or the target has one row or only equal ones, so there is no s.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import ReAlign
        >>> text, image = np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[0.0, 7.0], [0.0, 3.0], [0.0, 5.0]])
        >>> ReAlign(centroid=False).fit(text, image).transform(text).round(3)
        array([[-1.633,  5.   ],
               [ 1.633,  5.   ]])
    """

    name = "realign"
    mean_: np.ndarray
    target_mean_: np.ndarray
    centroid_: np.ndarray
    scale_: float

    def __init__(self, centroid: bool = True):
        self.centroid = centroid

    def check(self) -> None:
        flag(self.centroid, f"centroid of {self.name}")

    def _learn(self, source: Rows, target: Rows) -> None:
        self.mean_, self.target_mean_ = mean_of(source), mean_of(target)
        total = {"source": self._variance(source, "source"), "target": self._variance(target, "target")}
        self.scale_ = float(np.sqrt(total["target"] / total["source"]))
        self.centroid_ = self.target_mean_
        if self.centroid:
            unit = Normalize()
            sums = [unit.apply(self._aligned(block)).sum(0) for block in as_blocks(source)]
            self.centroid_ = np.sum(sums, axis=0) / len(source)

    def _variance(self, x: Rows, side: Literal["source", "target"]) -> float:
        mean = self.mean_ if side == "source" else self.target_mean_
        total, largest = 0.0, 0.0
        for block in as_blocks(x):
            total += float(np.square(block - mean).sum())
            largest = max(largest, float(np.abs(block).max()))
        if total <= len(x) * x.shape[1] * (4 * np.finfo(np.float64).eps * largest) ** 2:  # the rounding of the mean
            raise InputError(
                f"{self.name} compares the spread of both sets, but the {side} has none: its {len(x)} rows are equal"
            )
        return total / len(x)

    def _aligned(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean_) * self.scale_ + self.target_mean_

    def _affine(self) -> tuple[Any, Any, Any]:
        return super()._affine() if self.centroid else (self.mean_, self.scale_, self.target_mean_)

    def _map(self, x: np.ndarray) -> np.ndarray:
        aligned = self._aligned(x)
        if not self.centroid:
            return aligned
        return Normalize().apply(Normalize().apply(aligned) - self.centroid_ + self.target_mean_)
