"""Centring."""

import numpy as np
import torch

from clip_geometry.geometry.rows import mean_row
from clip_geometry.transforms.base import Transform, TransformEntry, transforms


class Center(Transform):
    """Subtracts the mean of the rows it was fitted on: w − μ. Attributes: mean_ (d,)."""

    name = "center"
    mean_: np.ndarray

    def _learn(self, x: np.ndarray) -> None:
        self.mean_ = mean_row(torch.from_numpy(x)).numpy()

    def _map(self, x: np.ndarray) -> np.ndarray:
        return x - self.mean_

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        return np.eye(len(self.mean_)), -self.mean_


transforms.add(
    Center.name,
    TransformEntry(make=Center, fits=True, summary="subtracts the mean of the set it is fitted on", formula="w − μ"),
)
