"""Principal axes from the rows themselves: forming the covariance would square the condition number."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from clip_geometry.geometry._core.triangle import triangle
from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Rows, as_blocks, in_torch, mean_of


@dataclass(frozen=True, eq=False)
class PrincipalAxes:
    """mean (d,), zero where not centred; axes (r, d), orthonormal rows; singular_values (r,), descending; rank ≤ r."""

    mean: np.ndarray
    axes: np.ndarray
    singular_values: np.ndarray
    rank: int

    def first(self, k: int, step: str, n: int) -> np.ndarray:
        """The first k axes, (k, d). Raises InputError for k above the rank: the others are arbitrary."""
        if k > self.rank:
            raise InputError(
                f"{step} needs {k} directions, but the {n} rows it is fitted on span only {self.rank}; "
                f"take k up to {self.rank}" + (" or fit it on more rows" if self.rank < len(self.mean) else "")
            )
        return self.axes[:k]


def principal_axes(x: Rows, *, center: bool) -> PrincipalAxes:
    """The right singular vectors of the (centred) rows of x, (n, d) float64, by blockwise QR and an SVD of R.

    The sign of an axis is arbitrary in the SVD; here the row that lies farthest along it lies on its positive side
    (scikit-learn's svd_flip), so that axes are a function of the data and turn with them. Where singular values
    repeat, the axes are not unique. Rank: the singular values above max(n, d) · ε · √(s₁² + n‖μ‖²), what rounding
    the rows leaves of a zero, such as the direction that centring takes from n ≤ d rows.
    """
    n, d = x.shape
    mean = mean_of(x) if center else np.zeros(d)
    _, values, axes = np.linalg.svd(triangle(in_torch(x), center=center).numpy(), full_matrices=False)
    noise = max(n, d) * np.finfo(np.float64).eps * np.hypot(values[0], np.sqrt(n) * np.linalg.norm(mean))
    return PrincipalAxes(mean, axes * _signs(x, mean, axes)[:, None], values, int((values > noise).sum()))


def _centred(x: Rows, mean: np.ndarray) -> Iterator[np.ndarray]:
    return (block - mean for block in as_blocks(x))


def _signs(x: Rows, mean: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """+1 or −1 for each axis: the sign of its largest score."""
    largest = np.zeros(len(axes))
    for block in _centred(x, mean):
        scores = block @ axes.T
        here = scores[np.abs(scores).argmax(0), np.arange(len(axes))]
        largest = np.where(np.abs(here) > np.abs(largest), here, largest)
    return np.where(largest < 0, -1.0, 1.0)
