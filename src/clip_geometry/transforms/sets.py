"""Bases of the transforms that map one set onto another."""

from typing import ClassVar, Self

import numpy as np

from clip_geometry import memory
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import BLOCK
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.transforms.base import Rows, Transform, as_blocks, as_learnable


class OntoTransform(Transform):
    """Base of the maps of one set onto another: `fit(source, target)` on any rows of both; `transform` maps the source.

    A subclass implements `_learn(source, target)`. Rows need not belong together, and there may be more of one set; of
    rows that do belong together, the order is not used.

    Attributes:
        one_space: Whether source and target have one dimension.
        least: Number of rows of each that it needs.
    """

    onto = True
    one_space: ClassVar[bool] = True
    least: ClassVar[int] = 2

    def fit(self, x: Rows, y: Rows | None = None) -> Self:
        """Learn from source rows x, (n, d), and target rows y, (m, e)."""
        source = self._start(x, "source")
        target = as_learnable(other_set(self, y), name="target")
        self._check_sets(source, target)
        if min(len(source), len(target)) < self.least:
            raise InputError(f"{self.name} needs at least 2 rows of each modality, but one has 1 sample")
        self._learn(source, target)
        self.fitted_on_ = len(source)
        return self

    def _check_sets(self, source: Rows, target: Rows) -> None:
        if self.one_space and source.shape[1] != target.shape[1]:
            raise InputError(
                f"source has dimension {source.shape[1]} and target has {target.shape[1]}; {self.name} needs one "
                "space, least_squares does not"
            )


class PairedTransform(OntoTransform):
    """Base of the linear maps of one set onto another that are fitted on pairs, row i of each.

    Attributes:
        W_: (d, e) the map x ↦ x W.
        rank_: The rank of what it was fitted on.
    """

    paired = True
    mixes = True
    least = 1
    W_: np.ndarray
    rank_: int

    def _check_sets(self, source: Rows, target: Rows) -> None:
        if len(source) != len(target):
            raise InputError(
                f"source has {len(source)} rows and target has {len(target)}; expected pairs, row i with row i"
            )
        super()._check_sets(source, target)

    def _map(self, x: np.ndarray) -> np.ndarray:
        return x @ self.W_

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        return self.W_, np.zeros(self.W_.shape[1])


class CenteredTransform(OntoTransform):
    """Base of the affine maps that carry the mean of one set to the other's: x ↦ (x − μ_s) W + μ_t.

    Attributes:
        W_: (d, e).
        source_mean_, target_mean_: (d,), (e,).
    """

    mixes = True
    W_: np.ndarray
    source_mean_: np.ndarray
    target_mean_: np.ndarray

    def _map(self, x: np.ndarray) -> np.ndarray:
        return (x - self.source_mean_) @ self.W_ + self.target_mean_

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        return self.W_, self.target_mean_ - self.source_mean_ @ self.W_


def other_set(transform: Transform, y: Rows | None) -> Rows:
    """Return the second set of a fit; raise InputError, in words that scikit-learn looks for, where there is none."""
    if y is not None:
        return y
    does = "maps one set onto another" if transform.onto else "is fitted on two sets"
    raise InputError(
        f"{transform.name} {does}: fit it on both, fit(source, target); it requires y to be passed, but the target y "
        "is None"
    )


def in_memory(transform: Transform, x: Rows) -> np.ndarray:
    """Return rows that a transform needs all at once; of streamed ones at most `memory.MOST_HELD` bytes."""
    if not isinstance(x, StreamedRows):
        return x
    n, d = x.shape
    if not memory.can_be_held(x.shape):
        raise InputError(
            f"{transform.name} needs its {n} rows in memory, and they are streamed; fit it on up to "
            f"{memory.MOST_HELD // (8 * d)}"
        )
    rows = np.empty((n, d))
    for start, block in zip(range(0, n, BLOCK), as_blocks(x), strict=True):
        rows[start : start + len(block)] = block
    return rows
