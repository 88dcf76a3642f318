"""Transforms of each row by itself or by the mean: normalize, center, scale."""

from typing import Any

import numpy as np
from sklearn.utils import Tags

from clip_geometry.rows.arguments import positive_number
from clip_geometry.rows.matrix import unit_rows
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.transforms.base import Rows, Transform, as_rows, mean_of, register


@register
class Normalize(Transform):
    """Divide each row by its length: u_i = w_i/‖w_i‖. Learns nothing.

    Raises:
        InputError: For zero rows.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Normalize
        >>> Normalize().fit_transform(np.array([[3.0, 4.0], [0.0, 2.0]])).round(2)
        array([[0.6, 0.8],
               [0. , 1. ]])
    """

    name = "normalize"
    fits = False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def apply(self, x: Rows) -> Any:
        rows = x if isinstance(x, StreamedRows) else as_rows(x)
        self._check_dimension(rows)
        unit = unit_rows(rows, name="rows")
        return unit if isinstance(unit, StreamedRows) else unit.numpy()


@register
class Center(Transform):
    """Subtract the mean of the fitting set: w − μ.

    Attributes:
        mean_: (d,) the mean.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Center
        >>> center = Center().fit(np.array([[1.0, 2.0], [3.0, 6.0]]))
        >>> center.transform(np.array([[2.0, 5.0]]))
        array([[0., 1.]])
    """

    name = "center"
    mean_: np.ndarray

    def _learn(self, x: Rows) -> None:
        self.mean_ = mean_of(x)

    def _affine(self) -> tuple[Any, Any, Any]:
        return self.mean_, 1.0, 0.0


@register
class Scale(Transform):
    """Multiply each row by a positive number: factor · w. Learns nothing.

    Measures of angles and of relative distances do not change; training, whose steps have a length, does.

    Args:
        factor: The number.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Scale
        >>> Scale(2.0).fit_transform(np.array([[1.0, 3.0]]))
        array([[2., 6.]])
    """

    name = "scale"
    fits = False

    def __init__(self, factor: float):
        self.factor = factor

    def check(self) -> None:
        positive_number(self.factor, f"factor of {self.name}")

    def _affine(self) -> tuple[Any, Any, Any]:
        return 0.0, float(self.factor), 0.0
