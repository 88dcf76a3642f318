"""The rows that transforms take: float64 arrays, or StreamedRows that are read in blocks."""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import torch

from clip_geometry.geometry._core import rows
from clip_geometry.geometry._core.streamed import StreamedRows

Rows: TypeAlias = np.ndarray | StreamedRows


def as_matrix(x: np.ndarray, *, name: str = "rows") -> np.ndarray:
    """Return `x` as a finite float64 matrix of at least one row."""
    return rows.as_rows(x, name=name, least=1).detach().cpu().double().numpy()


def as_learnable(x: Rows, *, name: str = "rows") -> Rows:
    """Like `as_matrix`, but also accept `StreamedRows`, which are returned unchanged."""
    if isinstance(x, StreamedRows):
        rows.as_matrix(x, name=name, least=1)
        return x
    return as_matrix(x, name=name)


def in_torch(x: Rows) -> rows.Matrix:
    """Return the rows as the functions of `geometry._core` take them."""
    return x if isinstance(x, StreamedRows) else torch.from_numpy(x)


def as_blocks(x: Rows) -> Iterator[np.ndarray]:
    """Yield the rows in float64 blocks."""
    return (block.numpy() for block in rows.blocks(in_torch(x)))


def mean_of(x: Rows) -> np.ndarray:
    """Return the mean row, (d,)."""
    return rows.mean_row(in_torch(x)).numpy()
