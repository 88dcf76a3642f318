"""Unit length."""

from typing import overload

import numpy as np

from clip_geometry.geometry._core.rows import as_rows, unit_rows
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.transforms.base import Rows, Transform, TransformEntry, transforms


class Normalize(Transform):
    """Each row divided by its length: u_i = w_i/‖w_i‖. Learns nothing. Raises InputError for zero rows."""

    name = "normalize"

    @overload
    def transform(self, x: np.ndarray) -> np.ndarray: ...
    @overload
    def transform(self, x: StreamedRows) -> StreamedRows: ...

    def transform(self, x: Rows) -> Rows:
        if isinstance(x, StreamedRows):
            return unit_rows(x, name="rows")
        return unit_rows(as_rows(x, name="rows", least=1).detach().cpu(), name="rows").numpy()

    def _learn(self, x: Rows) -> None:
        return

    def _map(self, x: np.ndarray) -> np.ndarray:
        return self.transform(x)


transforms.add(
    Normalize.name,
    TransformEntry(make=Normalize, fits=False, summary="makes each row unit length", formula="w/‖w‖"),
)
