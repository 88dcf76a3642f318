"""The base classes of transforms and their registry: scikit-learn's conventions, float64 inside.

They follow its protocol of an estimator without its base class, whose import (scipy.stats, pandas) takes as long as
torch's: `clone`, pipelines, searches, `set_output` and its checks of estimators take them all the same. What
scikit-learn offers, names of features and tables, is imported when a table comes in or is asked for.
"""

import inspect
import sys
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, cast, overload

import numpy as np
import torch

from clip_geometry.registry import InputError, Registry
from clip_geometry.rows import matrix
from clip_geometry.rows.arguments import check_values
from clip_geometry.rows.streamed import StreamedRows

Rows: TypeAlias = np.ndarray | StreamedRows


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


class Transform:
    """Base of all transforms: `fit(x)` learns attributes that end in _, `transform(x)` returns new float64 rows.

    A subclass implements `_learn`, unless it learns nothing, and `_map`. Parameters are checked in `fit`, as in
    scikit-learn. Of `StreamedRows`, `fit` reads blocks, and `transform` returns others that are computed when read.

    Attributes:
        name: How the transform is called in pipelines and in catalog.yaml, which explains it.
        fits: Whether it learns anything, so that the set it is fitted on matters.
        onto: Whether it is fitted on two sets and maps the first onto the second.
        paired: Whether these are aligned, row i with row i.
        joint: Whether it is fitted on two sets together and maps each by a map of its own.
        mixes: Whether it is an affine map to new features, whose number follows from `weights`.
        n_features_in_: The dimension d of the fitting set.
        feature_names_in_: Its column names, if it is a table whose columns have names.
        fitted_on_: The number of rows of the fitting set.
    """

    name: ClassVar[str]
    fits: ClassVar[bool] = True
    onto: ClassVar[bool] = False
    paired: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    mixes: ClassVar[bool] = False
    n_features_in_: int
    fitted_on_: int
    _sklearn_auto_wrap_output_keys: ClassVar = {"transform"}  # without which scikit-learn does not wrap what comes out

    def fit(self, x: Rows, y: Rows | None = None) -> Self:
        """Learn from the rows of x, (n, d); y is ignored."""
        rows = self._start(x)
        self._learn(rows)
        self.fitted_on_ = len(rows)
        return self

    def _start(self, x: Rows, name: str = "rows") -> Rows:
        """Check the parameters and the fitting set, and set what describes its columns."""
        self.check()
        rows = as_learnable(x, name=name)
        self._match_names(x, reset=True)
        self.n_features_in_ = rows.shape[1]
        return rows

    def _match_names(self, x: Rows, *, reset: bool) -> None:
        """Set the names of the features, or compare them with those of the fitting set."""
        known = reset or hasattr(self, "n_features_in_")  # normalize maps rows before it is fitted
        if known and (hasattr(x, "columns") or hasattr(self, "feature_names_in_")):
            from sklearn.utils.validation import validate_data

            validate_data(self, cast(Any, x), reset=reset, skip_check_array=True)

    @overload
    def transform(self, x: np.ndarray) -> np.ndarray: ...
    @overload
    def transform(self, x: StreamedRows) -> StreamedRows: ...

    def transform(self, x: Rows) -> Rows:
        """Return new rows: a float64 array without gradient, or what `set_output` asks for. x is not changed.

        Raises:
            InputError: If the dimension differs from that of the fitting set.
        """
        self._match_names(x, reset=False)
        mapped = self.apply(x)
        if "sklearn" not in sys.modules or isinstance(mapped, StreamedRows):  # nobody can have asked for a table
            return mapped
        from sklearn.utils._set_output import _wrap_data_with_container

        return cast(Any, _wrap_data_with_container("transform", mapped, x, self))

    @overload
    def apply(self, x: np.ndarray) -> np.ndarray: ...
    @overload
    def apply(self, x: StreamedRows) -> StreamedRows: ...

    def apply(self, x: Rows) -> Rows:
        """Like `transform`, but return arrays (of `StreamedRows`, others) whatever scikit-learn is configured to."""
        self.require_fitted()
        x = as_learnable(x)
        self._check_dimension(x)
        if not isinstance(x, StreamedRows):
            mapped = self._apply(x)
            check_values(torch.from_numpy(mapped), f"the result of {self.name}")
            return mapped
        width = self._apply(x[:1].double().numpy()).shape[1]
        rows = x.map(lambda block, _: torch.from_numpy(self._apply(block.double().numpy())), width)
        rows.name = f"the result of {self.name}"
        return rows

    def _check_dimension(self, x: matrix.Matrix | Rows) -> None:
        if x.shape[1] != getattr(self, "n_features_in_", x.shape[1]):
            raise InputError(  # in the words of scikit-learn, which its tools look for
                f"X has {x.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                "as input"
            )

    def _apply(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # check_values reports what overflows
            return self._map(x)

    def fit_transform(self, x: Rows, y: Rows | None = None) -> Any:
        """Fit on the rows and return them transformed."""
        return self.fit(x, y).transform(x)

    def require_fitted(self) -> None:
        """Raise scikit-learn's NotFittedError before `fit`."""
        if not hasattr(self, "fitted_on_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"{self.name} is not fitted yet; call fit first")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; none of them has parameters of its own, so `deep` changes nothing."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; raise InputError, and change nothing, for unknown names and for invalid values.

        A search of scikit-learn calls it before each fit and stops at its errors; for an error in `fit`, it records
        the score nan and goes on.
        """
        before = self.get_params()
        for name in params:
            if name not in before:
                raise InputError(f"{self.name} has no parameter {name!r}; known are {', '.join(before) or 'none'}")
        vars(self).update(params)
        try:
            self.check()
        except Exception:
            vars(self).update(before)
            raise
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not defaults[k].default]
        return f"{type(self).__name__}({', '.join(given)})"

    def set_output(self, *, transform: str | None = None) -> Self:
        """Say what `transform` returns: "default", arrays; "pandas" or "polars", tables; None changes nothing."""
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the new columns: those of the features, or pca0, pca1, … where they are mixed.

        Args:
            input_features: Names of the features, by default those of the fitting set or x0, x1, ….
        """
        from sklearn.base import ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin

        self.require_fitted()
        mixin: Any = OneToOneFeatureMixin if self._n_features_out is None else ClassNamePrefixFeaturesOutMixin
        return mixin.get_feature_names_out(self, input_features)

    @property
    def _n_features_out(self) -> int | None:
        """Number of the new features; None if each is one of the old ones, changed."""
        return len(self.weights()[1]) if self.mixes else None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags, TransformerTags

        several = self.onto or self.joint
        target = TargetTags(required=several, multi_output=several, single_output=not several)
        return Tags(estimator_type=None, target_tags=target, transformer_tags=TransformerTags())

    def check(self) -> None:
        """Raise InputError for parameters that no data could make valid."""

    def _learn(self, *args: Any, **kwargs: Any) -> None:
        """Set the learned attributes from the rows, or from source and target rows; by default there are none."""

    @abstractmethod
    def _map(self, x: np.ndarray) -> np.ndarray: ...

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (W, b) of a fitted affine map x ↦ x W + b; raise InputError if the transform is not affine."""
        raise InputError(f"{self.name} is no affine map, so it cannot be written as (W, b)")


def as_matrix(x: np.ndarray, *, name: str = "rows") -> np.ndarray:
    """Return `x` as a finite float64 matrix of at least one row."""
    return as_rows(x, name=name).double().numpy()


def as_rows(x: np.ndarray, *, name: str = "rows") -> torch.Tensor:
    """The same as a tensor in its own precision."""
    try:
        return matrix.as_rows(x, name=name, least=1).detach().cpu()
    except InputError as error:
        raise type(error)(f"{error}{_in_sklearn_words(x)}") from None


def _in_sklearn_words(x: Any) -> str:
    """What scikit-learn says of rows that are none, which its users and its checks look for."""
    try:
        shape, dtype = tuple(getattr(x, "shape", ())), getattr(x, "dtype", None)
    except Exception:  # whatever a foreign object does when it is asked, a nested tensor among them
        return ""
    if "sparse" in type(x).__module__:
        return "; sparse data is not supported: .toarray() makes it dense"
    if getattr(dtype, "kind", "") == "c":
        return " (Complex data not supported)"
    if len(shape) == 1:
        return " (Reshape your data: x.reshape(1, -1) if it is one row)"
    if len(shape) == 2 and shape[1] == 0:
        return f" (0 feature(s) (shape={tuple(shape)}) while a minimum of 1 is required.)"
    return ""


def as_learnable(x: Rows, *, name: str = "rows") -> Rows:
    """Like `as_matrix`, but also accept `StreamedRows`, which are returned unchanged."""
    if isinstance(x, StreamedRows):
        matrix.as_matrix(x, name=name, least=1)
        return x
    return as_matrix(x, name=name)


def in_torch(x: Rows) -> matrix.Matrix:
    """Return the rows as the functions of geometry take them."""
    return x if isinstance(x, StreamedRows) else torch.from_numpy(x)


def as_blocks(x: Rows) -> Iterator[np.ndarray]:
    """Yield the rows in float64 blocks."""
    return (block.numpy() for block in matrix.blocks(in_torch(x)))


def mean_of(x: Rows) -> np.ndarray:
    """Return the mean row, (d,)."""
    return matrix.mean_row(in_torch(x)).numpy()


transforms: Registry[type[Transform]] = Registry("pipeline step", "clip-geometry list transforms")
Kind = TypeVar("Kind", bound=type[Transform])


def register(kind: Kind) -> Kind:
    """Add a transform to the registry under its name, as a class decorator."""
    transforms.add(kind.name, kind)
    return kind
