"""Unit length."""

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Transform, TransformEntry, as_matrix, transforms


class Normalize(Transform):
    """Each row divided by its length: u_i = w_i/‖w_i‖. Raises InputError for zero rows."""

    def transform(self, x: np.ndarray) -> np.ndarray:
        x = as_matrix(x)
        largest = np.abs(x).max(axis=1, keepdims=True)
        if not largest.all():
            zero = np.flatnonzero(largest == 0)
            raise InputError(
                f"{len(zero)} of {len(x)} rows are zero (first: row {zero[0]}) and cannot be made unit length; "
                "remove them or measure with --raw"
            )
        x = x / largest  # squares of rows of any scale stay in range
        return x / np.linalg.norm(x, axis=1, keepdims=True)


transforms.add(
    "normalize",
    TransformEntry(make=Normalize, fits=False, summary="makes each row unit length", formula="w/‖w‖"),
)
