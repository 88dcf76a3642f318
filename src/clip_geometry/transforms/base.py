"""The base classes of transforms and their registry: scikit-learn's conventions, float64 inside."""

from abc import abstractmethod
from typing import Any, ClassVar, Self, TypeVar, overload

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.geometry._core.values import check_values
from clip_geometry.registry import InputError
from clip_geometry.transforms.rows import Rows, as_learnable
from clip_geometry.transforms.step import transforms


class RankWarning(UserWarning):
    """The fitting set does not determine the map; the message says how the map was completed.

    Example:
        >>> import warnings
        >>> import numpy as np
        >>> from clip_geometry import LeastSquares, RankWarning
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = LeastSquares().fit(np.eye(3)[:2], np.eye(3)[1:])
        >>> caught[0].category is RankWarning
        True
    """


class Transform(TransformerMixin, BaseEstimator):
    """Base of all transforms: `fit(x)` learns attributes that end in _, `transform(x)` returns new float64 rows.

    A subclass implements `_learn`, unless it learns nothing, and `_map`. Parameters are checked in `fit`, as in
    scikit-learn. Of `StreamedRows`, `fit` reads blocks, and `transform` returns others that are computed when read.

    Attributes:
        name, summary, formula: How the transform is called in pipelines and explained by `list transforms`.
        fits: Whether it learns anything, so that the set it is fitted on matters.
        paired: Whether it is fitted on two aligned sets.
        n_features_in_: The dimension d of the fitting set.
        fitted_on_: The number of rows of the fitting set.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    formula: ClassVar[str] = ""
    fits: ClassVar[bool] = True
    paired: ClassVar[bool] = False
    n_features_in_: int
    fitted_on_: int

    def fit(self, x: Rows, y: Rows | None = None) -> Self:
        """Learn from the rows of x, (n, d); y is ignored."""
        self.check()
        x = as_learnable(x)
        self.fitted_on_, self.n_features_in_ = x.shape
        self._learn(x)
        return self

    @overload
    def transform(self, x: np.ndarray) -> np.ndarray: ...
    @overload
    def transform(self, x: StreamedRows) -> StreamedRows: ...

    def transform(self, x: Rows) -> Rows:
        """Return new rows: a float64 array without gradient. x, an array or a tensor, is not changed.

        Raises:
            InputError: If the dimension differs from that of the fitting set.
        """
        check_is_fitted(self)
        x = as_learnable(x)
        if x.shape[1] != self.n_features_in_:
            raise InputError(
                f"rows have dimension {x.shape[1]}, but {self.name} was fitted on dimension {self.n_features_in_}"
            )
        if not isinstance(x, StreamedRows):
            mapped = self._apply(x)
            check_values(torch.from_numpy(mapped), f"the result of {self.name}")
            return mapped
        width = self._apply(x[:1].double().numpy()).shape[1]
        rows = x.map(lambda block, _: torch.from_numpy(self._apply(block.double().numpy())), width)
        rows.name = f"the result of {self.name}"
        return rows

    def _apply(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # check_values reports what overflows
            return self._map(x)

    def check(self) -> None:
        """Raise InputError for parameters that no data could make valid."""

    def _learn(self, *args: Any, **kwargs: Any) -> None:
        """Set the learned attributes from the rows, or from source and target rows; by default there are none."""

    @abstractmethod
    def _map(self, x: np.ndarray) -> np.ndarray: ...

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (W, b) of a fitted affine map x ↦ x W + b; raise InputError if the transform is not affine."""
        raise InputError(f"{self.name} is no affine map, so it cannot be written as (W, b)")


Kind = TypeVar("Kind", bound=type[Transform])


def register(kind: Kind) -> Kind:
    """Add a transform to the registry under its name, as a class decorator."""
    transforms.add(kind.name, kind)
    return kind
