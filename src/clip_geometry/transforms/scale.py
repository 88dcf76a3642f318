"""Another unit of length."""

import numpy as np

from clip_geometry.geometry._core.arguments import positive_number
from clip_geometry.transforms.base import Rows, Transform, TransformEntry, transforms


class Scale(Transform):
    """Multiplies each row by `factor`, a positive number: factor · w. Learns nothing.

    No measure of angles or of relative distances notices; a training, whose steps have a length, does.
    """

    name = "scale"

    def __init__(self, factor: float):
        self.factor = factor

    def check(self) -> None:
        positive_number(self.factor, f"factor of {self.name}")

    def _learn(self, x: Rows) -> None:
        return

    def _map(self, x: np.ndarray) -> np.ndarray:
        return x * float(self.factor)

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        return np.eye(self.n_features_in_) * float(self.factor), np.zeros(self.n_features_in_)


transforms.add(
    Scale.name,
    TransformEntry(make=Scale, fits=False, summary="multiplies each row by a number", formula="factor · w"),
)
