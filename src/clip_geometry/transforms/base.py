"""Base classes of the transforms, which are scikit-learn estimators that compute in float64, and their registry."""

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
    """Warning that the fitting set does not determine the map uniquely. The message says which map was chosen.

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
    """Base class of all transforms, used as in scikit-learn: `fit(X)` fits, `transform(X)` returns new rows.

    Fitted attributes end in _. Rows are returned in float64. A subclass implements `_learn` if something is fitted, and
    `_affine` if it is an affine map, otherwise `_map`. `fit` checks the parameters. For `StreamedRows`, `fit` reads
    blocks, and `transform` returns `StreamedRows` that are computed when they are read.

    Attributes:
        name: Name of the transform in pipelines and in catalog.yaml, which describes it.
        fits: Whether something is fitted, so that the fitting set matters.
        sets: Names of the sets on which the transform is fitted, one or two.
        onto: Whether it maps the first of two sets onto the second.
        paired: Whether the two sets must be aligned, row i with row i.
        joint: Whether it is fitted on two sets together and has a separate map for each of them.
        n_features_in_: Dimension d of the fitting set.
        feature_names_in_: Column names of the fitting set, if it is a table with named columns.
        fitted_on_: Number of rows of the fitting set.
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
        """Fit the transform.

        Args:
            X: (n, d) rows.
            y: (m, e) rows of the second set, for transforms that are fitted on two sets.

        Returns:
            The fitted transform itself.
        """
        self.check()
        if y is None and len(self.sets) == 2:
            purpose = "maps one set onto another" if self.onto else "is fitted on two sets"
            raise InputError(  # scikit-learn's tools look for this wording
                f"{self.name} {purpose}: fit it on both, fit(source, target); it requires y to be passed, but the "
                "target y is None"
            )
        sets = [as_matrix(rows, name=name) for rows, name in zip((X, y), self.sets, strict=False)]
        self._check_sets(*sets)
        self._learn(*sets)
        validate_data(self, cast(Any, X), reset=True, skip_check_array=True)  # sets n_features_in_ and the names
        self.fitted_on_ = len(sets[0])
        return self

    @overload
    def transform(self, X: np.ndarray) -> np.ndarray: ...
    @overload
    def transform(self, X: StreamedRows) -> StreamedRows: ...
    def transform(self, X: Rows) -> Rows:
        """Transform rows.

        Args:
            X: (n, d) rows, which are not modified.

        Returns:
            New rows: a float64 array without gradient, or what `set_output` requests.

        Raises:
            InputError: The dimension differs from that of the fitting set.
        """
        has_names = hasattr(X, "columns") or hasattr(self, "feature_names_in_")
        if has_names and hasattr(self, "n_features_in_"):  # normalize can map rows before it is fitted
            validate_data(self, cast(Any, X), reset=False, skip_check_array=True)  # compares the names
        return self.apply(X)

    def apply(self, x: Rows) -> Any:
        """Like `transform`, but always return an array, or `StreamedRows` for streamed rows."""
        check_is_fitted(self, "fitted_on_")
        x = as_matrix(x)
        self._check_dimension(x)
        name = f"the result of {self.name}"
        if not isinstance(x, StreamedRows):
            mapped = self._apply(torch.from_numpy(x))
            check_values(mapped, name)
            return mapped.numpy()
        rows = x.map(lambda block, _: self._apply(block), self._apply(x[:1]).shape[1])
        rows.name = name
        return rows

    def _check_dimension(self, x: matrix.Matrix | Rows) -> None:
        """Raise InputError if the rows do not have the dimension on which the transform was fitted."""
        if x.shape[1] != getattr(self, "n_features_in_", x.shape[1]):
            raise InputError(  # scikit-learn's tools look for this wording
                f"X has {x.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                "as input"
            )

    def _apply(self, x: torch.Tensor) -> torch.Tensor:
        with np.errstate(over="ignore", invalid="ignore"):  # check_values reports overflows
            return torch.from_numpy(self._map(x.double().numpy()))

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; for invalid values, raise InputError and change nothing.

        scikit-learn's grid search calls this method before each fit, so an invalid value stops it. An error in `fit`
        would not stop it, but only give a score of nan.
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
        two_sets = len(self.sets) == 2
        tags.target_tags = TargetTags(required=two_sets, multi_output=two_sets, single_output=not two_sets)
        return tags

    def check(self) -> None:
        """Raise InputError for parameters that are invalid for any data."""

    def _check_sets(self, *sets: Any) -> None:
        """Raise InputError for sets that do not fit together."""

    def _learn(self, *sets: Any, **options: Any) -> None:
        """Set the learned attributes from the rows of each set; by default, learn nothing."""

    def _affine(self) -> tuple[Any, Any, Any]:
        """Return (a, W, b) of the fitted map x ↦ (x − a) W + b; W is a matrix or a number, and a or b can be 0."""
        raise InputError(f"{self.name} is not an affine map, so it cannot be written as (W, b)")

    def _map(self, x: np.ndarray) -> np.ndarray:
        """Return the transformed rows of a block; by default (x − a) W + b."""
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
    """Base class of the affine maps to new features, which are named pca0, pca1, and so on."""

    @property
    def _n_features_out(self) -> int:
        return self.weights()[0].shape[1]


class OntoTransform(Transform):
    """Base class of transforms that map one set onto another, such as `ReAlign`.

    `fit(source, target)` fits the map, and `transform` maps source rows. The rows of the two sets need not correspond,
    and their numbers may differ. A subclass implements `_learn(source, target)`.

    Attributes:
        one_space: Whether source and target must have the same dimension.
    """

    sets = ("source", "target")
    onto = True
    one_space: ClassVar[bool] = True

    def _check_sets(self, *sets: Any) -> None:
        """Raise InputError if source and target do not suit the transform."""
        source, target = sets
        if self.paired and len(source) != len(target):
            raise InputError(
                f"source has {len(source)} rows and target has {len(target)}; expected pairs, row i with row i"
            )
        if self.one_space and source.shape[1] != target.shape[1]:
            raise InputError(
                f"source has dimension {source.shape[1]} and target has {target.shape[1]}; {self.name} needs both in "
                "one space, but least_squares does not"
            )
        if min(len(source), len(target)) < 2:
            raise InputError(f"{self.name} needs at least 2 rows of each modality, but one has 1 sample")


class PairedTransform(NewFeatures, OntoTransform):
    """Base class of linear maps of one set onto another that are fitted on pairs, such as `Procrustes`.

    `fit(source, target)` takes aligned rows, row i of both sets being a pair, and `transform` maps source rows.

    Attributes:
        W_: (d, e) the map x ↦ x W.
        rank_: Rank of the fitted data or of the map, as the subclass says.
    """

    paired = True
    W_: np.ndarray
    rank_: int

    def _affine(self) -> tuple[Any, Any, Any]:
        return 0.0, self.W_, 0.0

    def _warn_of_rank(self, rows: str, d: int, completed: str) -> None:
        """Warn if the fitting set does not determine the map in d dimensions."""
        if self.rank_ < d:
            reason = f"{self.name} was fitted on {rows} of rank {self.rank_} in dimension {d}"
            warnings.warn(f"{reason}, which leave part of the map free; it is {completed}", RankWarning, stacklevel=4)


def as_matrix(x: Any, *, name: str = "rows") -> Any:
    """Return `x` as a finite float64 matrix with at least one row; return `StreamedRows` unchanged."""
    rows = matrix.as_matrix(x, name=name, least=1)
    return rows if isinstance(rows, StreamedRows) else rows.detach().cpu().double().numpy()


def in_torch(x: Rows) -> matrix.Matrix:
    """Return the rows in the form that the functions in `geometry` accept."""
    return x if isinstance(x, StreamedRows) else torch.from_numpy(x)


def as_blocks(x: Rows) -> Iterator[np.ndarray]:
    """Yield the rows in float64 blocks."""
    return (block.numpy() for block in matrix.blocks(in_torch(x)))


def mean_of(x: Rows) -> np.ndarray:
    """Return the mean row, (d,)."""
    return matrix.mean_row(in_torch(x)).numpy()


Kind = TypeVar("Kind", bound=type[Transform])


def register(kind: Kind) -> Kind:
    """Register a subclass of `Transform` under its name, so that pipelines can use it.

    Use it as a class decorator. The name must also be described in a catalog.

    Args:
        kind: The subclass, with a class attribute `name`.

    Returns:
        The subclass, unchanged.

    Raises:
        InputError: `kind` is not a subclass of `Transform`.
    """
    if not (isinstance(kind, type) and issubclass(kind, Transform)):
        raise InputError(f"register was given {shown(kind)}; expected a subclass of Transform")
    transforms.add(kind.name, kind)
    return kind
