"""What a transform is: fitted on one set, applied to any; scikit-learn's conventions, float64 inside."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Self, TypeAlias, overload

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from clip_geometry.geometry._core import rows
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.geometry._core.values import check_values
from clip_geometry.registry import InputError, Registry

Rows: TypeAlias = np.ndarray | StreamedRows


class RankWarning(UserWarning):
    """The fitting set does not determine the map; the message says what was done about it."""


class Transform(TransformerMixin, BaseEstimator):
    """Base of all transforms. `fit(x)` learns attributes that end in _, `transform(x)` gives new float64 rows.

    A subclass says in `_learn` what it learns and in `_map` what it does; parameters are checked when it is fitted,
    as scikit-learn has it. StreamedRows are learned from block by block, and `transform` makes others of them, whose
    blocks are moved when they are read.

    Attributes: n_features_in_ (d), fitted_on_ (the number of rows it was fitted on).
    """

    name: ClassVar[str]
    least: ClassVar[int] = 1
    n_features_in_: int
    fitted_on_: int

    def fit(self, x: Rows, y: Rows | None = None) -> Self:
        """Learns from the rows of x, (n, d)."""
        self.check()
        x = as_learnable(x, least=self.least)
        self.fitted_on_, self.n_features_in_ = x.shape
        self._learn(x)
        return self

    @overload
    def transform(self, x: np.ndarray) -> np.ndarray: ...
    @overload
    def transform(self, x: StreamedRows) -> StreamedRows: ...

    def transform(self, x: Rows) -> Rows:
        """New rows, a float64 array without gradient; x, an array or a tensor, is not changed.

        Raises InputError where the dimension is not that of the fit.
        """
        check_is_fitted(self)
        x = as_learnable(x)
        if x.shape[1] != self.n_features_in_:
            raise InputError(
                f"rows have dimension {x.shape[1]}, but {self.name} was fitted on dimension {self.n_features_in_}"
            )
        if not isinstance(x, StreamedRows):
            moved = self._moved(x)
            check_values(torch.from_numpy(moved), f"the result of {self.name}")
            return moved
        width = self._moved(x[:1].double().numpy()).shape[1]
        rows = x.map(lambda block, _: torch.from_numpy(self._moved(block.double().numpy())), width)
        rows.name = f"the result of {self.name}"
        return rows

    def _moved(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # what leaves the range is a sentence
            return self._map(x)

    def check(self) -> None:
        """Raises InputError for parameters that no data could make sense of."""
        return

    @abstractmethod
    def _learn(self, x: Rows) -> None: ...

    @abstractmethod
    def _map(self, x: np.ndarray) -> np.ndarray: ...

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """(W, b) of a fitted affine map x ↦ x W + b; InputError where the transform is none."""
        raise InputError(f"{self.name} is no affine map, so it cannot be written as (W, b)")


class PairedTransform(Transform):
    """Base of the maps from one set to another: `fit(source, target)` on aligned rows; `transform` moves the source.

    Attributes: W_ (d, e), rank_, n_features_in_, fitted_on_.
    """

    W_: np.ndarray
    rank_: int

    def fit(self, x: Rows, y: Rows | None = None) -> Self:
        """Learns from source rows x, (n, d), and target rows y, (n, e), row i belonging to row i."""
        self.check()
        if y is None:
            raise InputError(f"{self.name} maps one set onto another: fit it on both, fit(source, target)")
        source, target = as_learnable(x, name="source"), as_learnable(y, name="target")
        if len(source) != len(target):
            raise InputError(
                f"source has {len(source)} rows and target has {len(target)}; expected pairs, row i with row i"
            )
        self.fitted_on_, self.n_features_in_ = source.shape
        self._learn_pairs(source, target)
        return self

    def _learn(self, x: Rows) -> None:
        raise NotImplementedError("pairs are learned from, not rows")

    @abstractmethod
    def _learn_pairs(self, source: Rows, target: Rows) -> None: ...

    def _map(self, x: np.ndarray) -> np.ndarray:
        return x @ self.W_

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        return self.W_, np.zeros(self.W_.shape[1])


def as_matrix(x: np.ndarray, *, name: str = "rows", least: int = 1) -> np.ndarray:
    """`x` as a finite float64 matrix of at least `least` rows."""
    return rows.as_rows(x, name=name, least=least).detach().cpu().double().numpy()


def as_learnable(x: Rows, *, name: str = "rows", least: int = 1) -> Rows:
    """The same, or StreamedRows of that size as they are."""
    if isinstance(x, StreamedRows):
        rows.as_matrix(x, name=name, least=least)
        return x
    return as_matrix(x, name=name, least=least)


def in_torch(x: Rows) -> rows.Matrix:
    """The rows as geometry walks through them."""
    return x if isinstance(x, StreamedRows) else torch.from_numpy(x)


def as_blocks(x: Rows) -> Iterator[np.ndarray]:
    """The rows in float64, some at a time."""
    return (block.numpy() for block in rows.blocks(in_torch(x)))


def mean_of(x: Rows) -> np.ndarray:
    """Their mean, (d,)."""
    return rows.mean_row(in_torch(x)).numpy()


@dataclass(frozen=True)
class TransformEntry:
    """fits: whether it learns anything, so that the set it is fitted on has to be stated; paired: from two sets."""

    make: Callable[..., Transform]
    fits: bool
    summary: str
    formula: str
    paired: bool = False


transforms: Registry[TransformEntry] = Registry("pipeline step", "clip-geometry list transforms")
