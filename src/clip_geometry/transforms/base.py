"""What a transform is: fitted on one set, applied to any; scikit-learn's conventions, float64 inside."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from clip_geometry.geometry.rows import as_rows
from clip_geometry.registry import Registry


class Transform(TransformerMixin, BaseEstimator):
    """Base of all transforms. `fit(x)` learns attributes that end in _, `transform(x)` gives new float64 rows."""

    def fit(self, x: np.ndarray, y: np.ndarray | None = None) -> Self:
        """Learns from the rows of x, (n, d); `fitted_on_` says how many and which."""
        return self

    @abstractmethod
    def transform(self, x: np.ndarray) -> np.ndarray:
        """New rows, float64; x is not changed."""


def as_matrix(x: np.ndarray, *, least: int = 1) -> np.ndarray:
    """`x` as a finite float64 matrix of at least `least` rows."""
    return as_rows(x, name="rows", least=least).double().numpy()


@dataclass(frozen=True)
class TransformEntry:
    """fits: whether the transform learns anything, so that the set it is fitted on has to be stated."""

    make: Callable[[], Transform]
    fits: bool
    summary: str
    formula: str


transforms: Registry[TransformEntry] = Registry("pipeline step")
