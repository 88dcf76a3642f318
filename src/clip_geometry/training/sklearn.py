"""In scikit-learn: a pipeline of several modalities as one transformer, and measures as scorers.

The transforms themselves (`Center`, `PCA`, `Procrustes`, …) are estimators already. What is one value per row besides
the rows, its modality and its item, is metadata; `sklearn.set_config(enable_metadata_routing=True)` makes scikit-learn
pass it through pipelines, splits and searches to whatever here takes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.pipeline import Pipeline as Chain
from sklearn.utils.metadata_routing import UNUSED, get_routing_for_object
from sklearn.utils.validation import check_is_fitted, validate_data

from clip_geometry.embeddings import Embeddings, pair_of
from clip_geometry.geometry import Measure
from clip_geometry.geometry.measure import as_registered
from clip_geometry.measuring.views import View
from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, listed, shown
from clip_geometry.rows.arguments import flag
from clip_geometry.rows.matrix import as_values
from clip_geometry.transforms import ANY, Pipeline, Step, transforms
from clip_geometry.transforms.base import as_matrix


class PipelineTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A pipeline, written as a string, for stacked rows of one or several modalities.

    Each modality goes through its own chain, and all rows come back in the order in which they were given. As
    metadata, `modality` and `item` are requested by default.

    Args:
        steps: Such as "normalize,center[each],procrustes[text-to-image]", as for `clip_geometry.Pipeline`.

    Attributes:
        pipeline_: The `Pipeline`; `.save(path)` writes it, `.affine("image")` is one map.
        n_features_in_: The dimension d of the fitting set.
        feature_names_in_: Its column names, if it is a table whose columns have names.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.training.sklearn import PipelineTransformer
        >>> x = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, 4.0]])
        >>> modality = ["image", "text", "image", "text"]
        >>> PipelineTransformer("center[each]").fit_transform(x, modality=modality)
        array([[-1.,  0.],
               [ 0., -1.],
               [ 1.,  0.],
               [ 0.,  1.]])
    """

    __metadata_request__fit: ClassVar = {"modality": True, "item": True}
    __metadata_request__transform: ClassVar = {"modality": True}
    pipeline_: Pipeline

    def __init__(self, steps: str | Sequence[str | Step] = "normalize"):
        self.steps = steps

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; raise InputError for invalid steps, so that a search stops at them."""
        _ = Pipeline(params.get("steps", ()))
        return super().set_params(**params)

    def fit(self, X: Any, y: Any = None, *, modality: Any = None, item: Any = None) -> Self:
        """Fit all steps.

        Args:
            X: Rows of all modalities, (n, d).
            y: Ignored.
            modality: The modality of each row, (n,), such as "image"; None if there is only one.
            item: What each row shows, (n,): rows of two modalities pair where it is equal. Only steps such as
                procrustes[text-to-image] need it.
        """
        pipeline, rows = Pipeline(self.steps), as_matrix(X)
        validate_data(self, X, reset=True, skip_check_array=True)
        places = _places(modality, len(rows))
        step = next((step for step in pipeline.steps if transforms[step.name].paired), None)
        if item is None and len(places) > 1 and step is not None:
            # by position, the rows of a shuffled split would pair with any other
            raise InputError(
                f"{step} is fitted on rows that belong together: give item=, one name for each row, equal where two "
                "modalities show the same"
            )
        sets = _sets(Embeddings(rows, "", item_id=item), places)
        fitted = pipeline.fit({name: each.vectors for name, each in sets.items()}, pair_of(sets))
        if fitted.refusal:
            raise InputError(fitted.refusal)
        self.pipeline_ = fitted
        self._n_features_out = next(iter(fitted.dimensions.values()))[1]  # names are pipelinetransformer0, …
        return self

    def fit_transform(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any = None, *, modality: Any = None, item: Any = None
    ) -> Any:
        """Fit all steps and return the rows transformed."""
        return self.fit(X, modality=modality, item=item).transform(X, modality=modality)

    def transform(self, X: Any, *, modality: Any = None) -> Any:
        """Return the rows after the pipeline, (n, e) float64 (or what `set_output` asks for).

        Args:
            X: Rows, (n, d).
            modality: The modality of each row, (n,); None if the pipeline was fitted without modalities.
        """
        check_is_fitted(self, "pipeline_")
        rows = as_matrix(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        places = _places(modality, len(rows))
        if modality is None and ANY not in self.pipeline_.chains:
            raise InputError(
                f"the pipeline was fitted for {listed(self.pipeline_.chains)} rows" + _GIVE.format("modality")
            )
        transformed = self.pipeline_.transform({name: rows[at] for name, at in places.items()})
        stacked = np.empty((len(rows), next(iter(transformed.values())).shape[1]))
        for name, at in places.items():
            stacked[at] = transformed[name]
        return stacked


class MeasureScorer(BaseEstimator):
    """What `scorer` returns: a callable (estimator, X, y) → float that requests `modality` and `item` as metadata."""

    __metadata_request__score: ClassVar = {"estimator": UNUSED, "modality": True, "item": True}

    def __init__(
        self,
        measure: str | Measure,
        greater_is_better: bool | None = None,
        modalities: str | Sequence[str] | None = None,
    ):
        self.measure = measure
        self.greater_is_better = greater_is_better
        self.modalities = modalities

    def score(self, estimator: Any, X: Any, y: Any = None, *, modality: Any = None, item: Any = None) -> float:
        """Return the measure of the transformed rows, negative if less is better.

        Args:
            estimator: Fitted, with `transform`; of a scikit-learn pipeline that ends in a predictor, the steps before.
            X: Rows, (n, d).
            y: Labels, (n,), for measures of labeled rows; for measures of two sets, (n, e) rows of the other set, where
                row i belongs to row i of X.
            modality: The modality of each row, (n,).
            item: What each row shows, (n,): rows of two modalities pair where it is equal.
        """
        measure = as_registered(self.measure)
        sign = 1 if _greater_is_better(measure, self.greater_is_better) else -1
        rows = _transformed(estimator, X, modality)
        return sign * float(measure(*self._arguments(measure, rows, y, modality, item)))

    __call__ = score

    def _arguments(self, measure: Measure, rows: np.ndarray, y: Any, modality: Any, item: Any) -> tuple:
        """What the measure takes."""
        labels = np.asarray(y) if y is not None and np.ndim(y) == 1 else None
        across = measure.inputs.across
        if across and modality is None:
            if y is None or np.ndim(y) != 2:
                raise InputError(
                    f"{measure.name} compares two sets: give y, the rows of the other one, or stack both"
                    + _GIVE.format("modality")
                )
            sets = {"image": Embeddings(rows, "image"), "text": Embeddings(np.asarray(y), "text")}
        else:
            chosen = [self.modalities] if isinstance(self.modalities, str) else self.modalities
            whole = not across and chosen is None
            places = _places(None if whole else modality, len(rows))
            wanted = chosen or list(places)
            if len(wanted) != 1 + across or not {*wanted} <= {*places}:
                raise InputError(
                    f"{measure.name} takes rows of {'two modalities' if across else 'one modality'}, and there are "
                    f"{listed(places)}: choose with modalities=" + _GIVE.format("modality") * (modality is None)
                )
            labeled = measure.takes == "relevant sets" and labels is not None
            if across and item is None and measure.takes not in ("two sets", "classes") and not labeled:
                raise InputError(f"{measure.name} compares rows that belong together{_GIVE.format('item')}")
            sets = _sets(Embeddings(rows, "", item_id=item, labels=labels), {name: places[name] for name in wanted})
        if measure.takes == "labeled rows" and labels is None:
            raise InputError(f"{measure.name} compares classes: give y, one label for each row")
        view = View(sets, {name: each.vectors for name, each in sets.items()})
        return view.arguments(measure, "both" if across else next(iter(sets)))


_GIVE = (
    ": give {}=, one name for each row, as metadata (params= of cross_validate, with "
    "sklearn.set_config(enable_metadata_routing=True))"
)


def scorer(
    measure: str | Measure,
    *,
    greater_is_better: bool | None = None,
    modalities: str | Sequence[str] | None = None,
) -> MeasureScorer:
    """Return a measure as a scorer: the `scoring=` of GridSearchCV, cross_validate and their like.

    It transforms the rows with the estimator and measures what comes out. A measure describes a geometry: more
    isotropic rows or a smaller gap do not make a search or a classifier better, so report the task's score beside it.

    Args:
        measure: A name of `clip_geometry.measures`, or a Measure. Those that fit a probe themselves are no scorers.
        greater_is_better: False returns the negative value, so that a search looks for the smallest. By default the
            measure's own direction decides: the score of modality_gap is its negative.
        modalities: Of which rows, by the metadata `modality`: one name for measures of one set (by default all rows
            together), two for measures of two sets (by default the two that there are). As everywhere, the first by
            name stands for the image.

    Raises:
        InputError: The measure is unknown, takes what no scorer is given, or has no direction and none is given.

    Example:
        >>> import numpy as np
        >>> from sklearn.model_selection import GridSearchCV
        >>> from clip_geometry import AllButTheTop
        >>> from clip_geometry.training.sklearn import scorer
        >>> x = np.random.default_rng(0).normal(size=(200, 6)) * [9, 9, 1, 1, 1, 1] + 3
        >>> GridSearchCV(AllButTheTop(1), {"k": [1, 2, 3]}, scoring=scorer("isoscore")).fit(x).best_params_
        {'k': 2}
    """
    found = as_registered(measure)
    if found.takes == "train and test":
        raise InputError(
            f"{found.name} takes {found.takes}, which no scorer is given: put a classifier at the end of the pipeline "
            "and score its predictions"
        )
    _greater_is_better(found, greater_is_better)
    return MeasureScorer(measure, greater_is_better, modalities)


def _greater_is_better(measure: Measure, asked: bool | None) -> bool:
    if asked is not None:
        return flag(asked, "greater_is_better")
    direction = (measure.better or measure.direction).split()[0]
    if direction not in ("higher", "lower"):
        raise InputError(
            f"{measure.name} has no direction of its own ({measure.direction}): say greater_is_better=True or False"
        )
    return direction == "higher"


def _transformed(estimator: Any, X: Any, modality: Any) -> np.ndarray:
    """The rows by the estimator, which is given their modality if it requests that."""
    estimator = getattr(estimator, "best_estimator_", estimator)  # a search itself passes no metadata to transform
    if not hasattr(estimator, "transform") and isinstance(estimator, Chain) and len(estimator) > 1:
        estimator = estimator[:-1]
    if not hasattr(estimator, "transform"):
        raise InputError(f"{shown(estimator)} has no transform, so there are no rows to be measured")
    metadata: Mapping[str, Any] = {} if modality is None else {"modality": modality}
    consumed = get_routing_for_object(estimator).consumes("transform", metadata)
    return as_matrix(estimator.transform(X, **{name: metadata[name] for name in consumed}))


def _sets(every: Embeddings, places: Mapping[str, np.ndarray]) -> dict[str, Embeddings]:
    """The rows of each modality, with what belongs to them."""
    return {name: replace(every.take(at), modality="" if name == ANY else name) for name, at in places.items()}


def _places(modality: Any, n: int) -> dict[str, np.ndarray]:
    """Modality → the numbers of its rows; {"any": all} without modalities."""
    if modality is None:
        return {ANY: np.arange(n)}
    names = np.array([modality_name(name) for name in as_values(modality, n, name="modality")])
    return {str(name): np.flatnonzero(names == name) for name in np.unique(names)}
