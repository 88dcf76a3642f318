"""Centring."""

from typing import Self

import numpy as np
import torch

from clip_geometry.geometry.rows import mean_row
from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Transform, TransformEntry, as_matrix, transforms


class Center(Transform):
    """Subtracts the mean of the rows it was fitted on: w − μ. Attributes: mean_ (d,), fitted_on_ (rows)."""

    def fit(self, x: np.ndarray, y: np.ndarray | None = None) -> Self:
        x = as_matrix(x)
        self.mean_ = mean_row(torch.from_numpy(x)).numpy()
        self.fitted_on_ = len(x)
        return self

    def transform(self, x: np.ndarray) -> np.ndarray:
        x = as_matrix(x)
        if x.shape[1] != len(self.mean_):
            fitted = len(self.mean_)
            raise InputError(f"rows have dimension {x.shape[1]}, but the mean was fitted on dimension {fitted}")
        return x - self.mean_


transforms.add(
    "center",
    TransformEntry(make=Center, fits=True, summary="subtracts the mean of the set it is fitted on", formula="w − μ"),
)
