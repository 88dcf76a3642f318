"""The base class of transforms and their registry: estimators of scikit-learn, float64 inside."""

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, cast, overload

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags, TargetTags
from sklearn.utils.validation import check_is_fitted, validate_data

from clip_geometry.registry import InputError, shown
from clip_geometry.rows import matrix
from clip_geometry.rows.arguments import check_values
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.steps import transforms

Rows: TypeAlias = np.ndarray | StreamedRows


class RankWarning(UserWarning):
    """The fitting set does not determine the map; the message says how the map was completed.

    Example:
        >>> import warnings
        >>> import numpy as np
        >>> from clip_geometry.transforms import LeastSquares, RankWarning
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = LeastSquares().fit(np.eye(3)[:2], np.eye(3)[1:])
        >>> caught[0].category is RankWarning
        True
    """


class Transform(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Base of all transforms: `fit(X)` learns attributes that end in _, `transform(X)` returns new float64 rows.

    A subclass implements `_learn`, unless it learns nothing, and `_affine` if it is an affine map, otherwise `_map`.
    Parameters are checked in `fit`, as in scikit-learn. Of `StreamedRows`, `fit` reads blocks, and `transform` returns
    others that are computed when read.

    Attributes:
        name: How the transform is called in pipelines and in catalog.yaml, which explains it.
        fits: Whether it learns anything, so that the set it is fitted on matters.
        sets: What the sets are called that it is fitted on, one or two.
        onto: Whether it maps the first of two sets onto the second.
        paired: Whether these are aligned, row i with row i.
        joint: Whether it is fitted on two sets together and maps each by a map of its own.
        n_features_in_: The dimension d of the fitting set.
        feature_names_in_: Its column names, if it is a table whose columns have names.
        fitted_on_: The number of rows of the fitting set.
    """

    name: ClassVar[str]
    fits: ClassVar[bool] = True
    sets: ClassVar[tuple[str, ...]] = ("rows",)
    onto: ClassVar[bool] = False
    paired: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    n_features_in_: int
    fitted_on_: int

    def fit(self, X: Rows, y: Rows | None = None) -> Self:
        """Learn from the rows of X, (n, d), and from those of y, (m, e), if it is fitted on two sets."""
        self.check()
        if y is None and len(self.sets) == 2:
            does = "maps one set onto another" if self.onto else "is fitted on two sets"
            raise InputError(  # in the words of scikit-learn, which its tools look for
                f"{self.name} {does}: fit it on both, fit(source, target); it requires y to be passed, but the target "
                "y is None"
            )
        rows = [as_matrix(each, name=name) for each, name in zip((X, y), self.sets, strict=False)]
        self._check_sets(*rows)
        self._learn(*rows)
        validate_data(self, cast(Any, X), reset=True, skip_check_array=True)  # sets n_features_in_ and the names
        self.fitted_on_ = len(rows[0])
        return self

    @overload
    def transform(self, X: np.ndarray) -> np.ndarray: ...
    @overload
    def transform(self, X: StreamedRows) -> StreamedRows: ...
    def transform(self, X: Rows) -> Rows:
        """Return new rows: a float64 array without gradient, or what `set_output` asks for. X is not changed.

        Raises:
            InputError: If the dimension differs from that of the fitting set.
        """
        named = hasattr(X, "columns") or hasattr(self, "feature_names_in_")
        if named and hasattr(self, "n_features_in_"):  # normalize maps rows before it is fitted
            validate_data(self, cast(Any, X), reset=False, skip_check_array=True)  # compares the names
        return self.apply(X)

    def apply(self, x: Rows) -> Any:
        """Like `transform`, but return arrays (of `StreamedRows`, others) whatever scikit-learn is configured to."""
        check_is_fitted(self, "fitted_on_")
        x = as_matrix(x)
        self._check_dimension(x)
        result = f"the result of {self.name}"
        if not isinstance(x, StreamedRows):
            mapped = self._apply(torch.from_numpy(x))
            check_values(mapped, result)
            return mapped.numpy()
        rows = x.map(lambda block, _: self._apply(block), self._apply(x[:1]).shape[1])
        rows.name = result
        return rows

    def _check_dimension(self, x: matrix.Matrix | Rows) -> None:
        if x.shape[1] != getattr(self, "n_features_in_", x.shape[1]):
            raise InputError(  # in the words of scikit-learn, which its tools look for
                f"X has {x.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                "as input"
            )

    def _apply(self, x: torch.Tensor) -> torch.Tensor:
        with np.errstate(over="ignore", invalid="ignore"):  # check_values reports what overflows
            return torch.from_numpy(self._map(x.double().numpy()))

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; raise InputError for invalid values, and change nothing.

        A search of scikit-learn calls it before each fit and stops at its errors; for an error in `fit`, it records
        the score nan and goes on.
        """
        before = self.get_params()
        super().set_params(**params)
        try:
            self.check()
        except InputError:
            super().set_params(**before)
            raise
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        several = len(self.sets) == 2
        tags.target_tags = TargetTags(required=several, multi_output=several, single_output=not several)
        return tags

    def check(self) -> None:
        """Raise InputError for parameters that no data could make valid."""

    def _check_sets(self, *sets: Any) -> None:
        """Raise InputError for sets that do not go together."""

    def _learn(self, *sets: Any, **options: Any) -> None:
        """Set the learned attributes from the rows of each set; by default there are none."""

    def _affine(self) -> tuple[Any, Any, Any]:
        """Return (a, W, b) of the fitted map x ↦ (x − a) W + b; W is a matrix or a number, 0 is no shift."""
        raise InputError(f"{self.name} is no affine map, so it cannot be written as (W, b)")

    def _map(self, x: np.ndarray) -> np.ndarray:
        before, weights, after = self._affine()
        x = x - before if np.any(before) else x
        x = x @ weights if np.ndim(weights) else x * weights
        return x + after if np.any(after) else x

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (W, b) of a fitted affine map x ↦ x W + b; raise InputError if the transform is not affine."""
        before, weights, after = self._affine()
        if not np.ndim(weights):
            weights = np.eye(self.n_features_in_) * weights
        return weights, after - np.broadcast_to(before, len(weights)) @ weights


class NewFeatures(ClassNamePrefixFeaturesOutMixin, Transform):
    """Base of the affine maps to new features, which are called pca0, pca1, …."""

    @property
    def _n_features_out(self) -> int:
        return self.weights()[0].shape[1]


class OntoTransform(Transform):
    """Base of the maps of one set onto another: `fit(source, target)` on any rows of both; `transform` maps the source.

    A subclass implements `_learn(source, target)`. Rows need not belong together, and there may be more of one set.

    Attributes:
        one_space: Whether source and target have one dimension.
    """

    sets = ("source", "target")
    onto = True
    one_space: ClassVar[bool] = True

    def _check_sets(self, *sets: Any) -> None:
        source, target = sets
        if self.paired and len(source) != len(target):
            raise InputError(
                f"source has {len(source)} rows and target has {len(target)}; expected pairs, row i with row i"
            )
        if self.one_space and source.shape[1] != target.shape[1]:
            raise InputError(
                f"source has dimension {source.shape[1]} and target has {target.shape[1]}; {self.name} needs one "
                "space, least_squares does not"
            )
        if min(len(source), len(target)) < 2:
            raise InputError(f"{self.name} needs at least 2 rows of each modality, but one has 1 sample")


class PairedTransform(NewFeatures, OntoTransform):
    """Base of the maps of one set onto another that are fitted on pairs, row i of each.

    Attributes:
        W_: (d, e) the map x ↦ x W.
        rank_: The rank of what it was fitted on.
    """

    paired = True
    W_: np.ndarray
    rank_: int

    def _affine(self) -> tuple[Any, Any, Any]:
        return 0.0, self.W_, 0.0

    def _warn_of_rank(self, rows: str, d: int, completed: str) -> None:
        """Warn where the fitting set does not determine the map of d dimensions."""
        if self.rank_ < d:
            message = f"{self.name} was fitted on {rows} of rank {self.rank_} in dimension {d}, which leave part of the"
            warnings.warn(f"{message} map free; it is {completed}", RankWarning, stacklevel=4)


def as_matrix(x: Any, *, name: str = "rows") -> Any:
    """Return `x` as a finite float64 matrix of at least one row; `StreamedRows` are returned as they are."""
    rows = matrix.as_matrix(x, name=name, least=1)
    return rows if isinstance(rows, StreamedRows) else rows.detach().cpu().double().numpy()


def in_torch(x: Rows) -> matrix.Matrix:
    """Return the rows as the functions of geometry take them."""
    return x if isinstance(x, StreamedRows) else torch.from_numpy(x)


def as_blocks(x: Rows) -> Iterator[np.ndarray]:
    """Yield the rows in float64 blocks."""
    return (block.numpy() for block in matrix.blocks(in_torch(x)))


def mean_of(x: Rows) -> np.ndarray:
    """Return the mean row, (d,)."""
    return matrix.mean_row(in_torch(x)).numpy()


Kind = TypeVar("Kind", bound=type[Transform])


def register(kind: Kind) -> Kind:
    """Add a transform to the registry under its name, as a class decorator."""
    if not (isinstance(kind, type) and issubclass(kind, Transform)):
        raise InputError(f"register takes a subclass of Transform and was given {shown(kind)}")
    transforms.add(kind.name, kind)
    return kind
