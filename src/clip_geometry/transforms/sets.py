"""Bases of the transforms fitted on several sets: one mapped onto another, or all of them corrected together."""

import warnings
from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from clip_geometry import memory
from clip_geometry.geometry._core.rows import BLOCK
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.registry import InputError
from clip_geometry.transforms.base import RankWarning, Rows, Transform, as_blocks, as_learnable


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
        _check_number(self, source, target)
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

    def _warn_of_rank(self, rank: int) -> None:
        """Warn that the rows leave directions free, if they do."""
        if rank < (full := min(len(self.source_mean_), len(self.target_mean_))):
            warnings.warn(
                f"{self.name} was fitted on rows of rank {rank} in dimension {full}, which leave part of the map free; "
                "that part is zero",
                RankWarning,
                stacklevel=4,
            )

    def _map(self, x: np.ndarray) -> np.ndarray:
        return (x - self.source_mean_) @ self.W_ + self.target_mean_

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        return self.W_, self.target_mean_ - self.source_mean_ @ self.W_


class JointTransform(Transform):
    """Base of the transforms fitted on several sets at once, each of which is corrected by a map of its own.

    `fit_sets(sets)` returns one fitted transform for each set. scikit-learn's `fit(x, y)` takes the rows of two sets,
    and `transform` corrects those of the first. A subclass implements `_learn(*sets)`, which sets what is learned of
    all sets, and `_map`, which corrects rows of the set number `set_`.

    Attributes:
        set_: The number of the set that `transform` corrects.
        least: Number of rows of each set that it needs.
    """

    joint = True
    least: ClassVar[int] = 2
    set_: int

    def fit(self, x: Rows, y: Rows | None = None) -> Self:
        """Learn from rows x, (n, d), and rows y, (m, d), of another set."""
        return self._fit([x, y])

    def fit_sets(self, sets: Sequence[Rows]) -> list[Self]:
        """Learn from the rows of all sets, (n, d) each, and return the transform of each, in their order.

        Raises:
            InputError: For fewer than two sets, and for sets of several dimensions.
        """
        if len(sets) < 2:
            raise InputError(f"{self.name} corrects sets towards each other, but {len(sets)} was given; expected two")
        fitted = type(self)(**self.get_params())._fit(sets)
        found = [copy(fitted) for _ in sets]
        for number, (each, rows) in enumerate(zip(found, sets, strict=True)):
            each.set_, each.fitted_on_ = number, len(rows)
        return found

    def _fit(self, sets: Sequence[Rows | None], **learning: Any) -> Self:
        first, *others = sets
        checked = [self._start(first, "rows")]  # pyright: ignore[reportArgumentType]
        checked += [as_learnable(other_set(self, each), name="rows of the other set") for each in others]
        if len(shapes := {each.shape[1] for each in checked}) > 1:
            raise InputError(f"{self.name} needs one space, but the sets have dimensions {sorted(shapes)}")
        _check_number(self, *checked)
        self._learn(*checked, **learning)
        self.set_, self.fitted_on_ = 0, len(checked[0])
        return self


def _check_number(transform: OntoTransform | JointTransform, *sets: Rows) -> None:
    if min(map(len, sets)) < transform.least:
        raise InputError(f"{transform.name} needs at least 2 rows of each modality, but one has 1 sample")


def other_set(transform: Transform, y: Rows | None) -> Rows:
    """Return the second set of a fit; raise InputError, in words that scikit-learn looks for, where there is none."""
    if y is not None:
        return y
    does = "maps one set onto another" if transform.onto else "corrects sets towards each other"
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
