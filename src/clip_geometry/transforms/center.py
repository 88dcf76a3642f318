"""Centring."""

import numpy as np

from clip_geometry.transforms.base import Rows, Transform, TransformEntry, mean_of, transforms


class Center(Transform):
    """Subtracts the mean of the rows it was fitted on: w − μ. Attributes: mean_ (d,)."""

    name = "center"
    mean_: np.ndarray

    def _learn(self, x: Rows) -> None:
        self.mean_ = mean_of(x)

    def _map(self, x: np.ndarray) -> np.ndarray:
        return x - self.mean_

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        return np.eye(len(self.mean_)), -self.mean_


transforms.add(
    Center.name,
    TransformEntry(make=Center, fits=True, summary="subtracts the mean of the set it is fitted on", formula="w − μ"),
)
