"""All transforms as scikit-learn's estimators: its own checks, tables, names of features, pipelines and searches."""

import doctest
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks as checks

import clip_geometry as cg
from clip_geometry.registry import InputError
from clip_geometry.steps import transforms
from clip_geometry.transforms import (
    PCA,
    AllButTheTop,
    Center,
    ClusterCenter,
    Conceptor,
    IsoCLIP,
    LeastSquares,
    Normalize,
    Procrustes,
    ReAlign,
    Ridge,
    Scale,
    Whiten,
)
from support.sklearn_checks import pass_checks


def _onto(x):
    try:
        return np.flip(np.asarray(x, float), axis=1) + 0.5
    except (TypeError, ValueError, np.exceptions.ComplexWarning):
        return x  # of what is no matrix, which `fit` finds before it looks at the target


class OntoRows:
    """Fitted on a second set of rows, where the checks have labels."""

    def fit(self, x, y=None):
        return super().fit(x, None if y is None else _onto(x))


class ProcrustesOntoRows(OntoRows, Procrustes): ...


class LeastSquaresOntoRows(OntoRows, LeastSquares): ...


class ReAlignOntoRows(OntoRows, ReAlign): ...


class IsoCLIPOntoRows(OntoRows, IsoCLIP): ...


class RidgeOntoRows(OntoRows, Ridge): ...


# the checks have data sets of one column and of one row, of which there is one direction, or none
ALONE = [
    Normalize(),
    Scale(2.5),
    Center(),
    Whiten(1),
    PCA(1),
    PCA(1, center=False),
    AllButTheTop(1),
    ClusterCenter(1),
    ClusterCenter(2),
    Conceptor(),
]
ONTO_ROWS = [
    ProcrustesOntoRows(),
    LeastSquaresOntoRows(),
    ReAlignOntoRows(),
    ReAlignOntoRows(centroid=False),
    IsoCLIPOntoRows(0, 0),
    RidgeOntoRows(),
]
PAIRED = [Procrustes(), LeastSquares()]

NO_INTEGERS = dict.fromkeys(
    ("check_estimators_dtypes", "check_dtype_object"),
    "Integers and objects are more often labels, tokens or quantized rows than embeddings: an error everywhere here.",
)
OUR_WORDS = dict.fromkeys(
    (
        *("check_complex_data", "check_estimators_empty_data_messages", "check_fit2d_predict1d"),
        *("check_estimator_sparse_array", "check_estimator_sparse_matrix", "check_estimator_sparse_tag"),
    ),
    "The error names the rows in the words that all functions of this package have.",
)
LABELS = "The check's target is a column of labels; a target is rows of embeddings, of which ONTO_ROWS has some."
NO_TARGET = dict.fromkeys(
    (
        *("check_fit_score_takes_y", "check_estimators_overwrite_params", "check_dont_overwrite_parameters"),
        *("check_estimators_fit_returns_self", "check_readonly_memmap_input", "check_n_features_in_after_fitting"),
        *("check_positive_only_tag_during_fit", "check_pipeline_consistency", "check_estimators_pickle"),
        *("check_f_contiguous_array_estimator", "check_transformer_data_not_an_array", "check_transformer_general"),
        *("check_transformer_preserve_dtypes", "check_methods_sample_order_invariance", "check_fit2d_1sample"),
        *("check_methods_subset_invariance", "check_fit2d_1feature", "check_dict_unchanged", "check_fit_idempotent"),
        *("check_fit_check_is_fitted", "check_n_features_in"),
    ),
    LABELS,
)


SETTING = {
    "check_do_not_raise_errors_in_init_or_set_params": "A search has to stop at an invalid value such as k = 0; for an "
    "error in `fit` it would record the score nan and go on."
}


def expected_failures(estimator):
    expected = NO_INTEGERS | OUR_WORDS | (SETTING if estimator.get_params() else {})
    if type(estimator) is Procrustes:
        return {**expected, **NO_TARGET, "check_estimators_nan_inf": LABELS}
    return {**expected, **NO_TARGET} if type(estimator) is LeastSquares else expected


free = pytest.mark.filterwarnings("ignore:.* leave part of the map free")  # of fewer rows than columns


@free
@pytest.mark.filterwarnings("ignore:InputError occurred during set_params")  # for the reason of SETTING
@pytest.mark.parametrize("estimator", [*ALONE, *ONTO_ROWS, *PAIRED], ids=repr)
def test_the_checks_of_scikit_learn(estimator):
    pass_checks(estimator, expected_failures(estimator))


# those that it runs on its own estimators only
TABLES = [
    checks.check_dataframe_column_names_consistency,
    checks.check_transformer_get_feature_names_out,
    checks.check_transformer_get_feature_names_out_pandas,
    checks.check_set_output_transform_pandas,
]


@free
@pytest.mark.filterwarnings("ignore:X (does not have valid|has) feature names")  # they mix tables and arrays
@pytest.mark.parametrize("check", TABLES, ids=lambda check: check.__name__)
@pytest.mark.parametrize("estimator", [*ALONE, *ONTO_ROWS], ids=repr)
def test_tables(estimator, check):
    check(type(estimator).__name__, estimator)


def test_every_transform_is_checked():
    checked = {type(each).__mro__[2] if isinstance(each, OntoRows) else type(each) for each in (*ALONE, *ONTO_ROWS)}
    assert checked == {*transforms.values()}


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(40, 4)) + 1


@pytest.fixture
def table(x):
    return pd.DataFrame(x, columns=["a", "b", "c", "d"], index=[f"row {k}" for k in range(40)])


@pytest.mark.parametrize(
    ("transform", "names"),
    [
        (Center(), ["a", "b", "c", "d"]),
        (PCA(2), ["pca0", "pca1"]),
        (make_pipeline(Center(), PCA(2), Normalize()), ["pca0", "pca1"]),
    ],
    ids=repr,
)
def test_names_of_the_columns(transform, names, table):
    expected = clone(transform).fit(table).transform(table)
    framed = clone(transform).set_output(transform="pandas").fit_transform(table)
    assert list(framed.columns) == names and list(framed.index) == list(table.index)
    assert (framed.to_numpy() == expected).all() and type(expected) is np.ndarray


def test_what_is_computed_inside_does_not_depend_on_the_output(x):
    """Pipelines, maps, repairs and evaluators take arrays from transforms, whatever is configured."""
    sets, labels = {"image": x, "text": x[::-1] + 1}, np.arange(40) % 2
    steps = "normalize,center[each],procrustes[text-to-image],normalize"

    def computed():
        fitted = cg.Pipeline(steps).fit(sets)
        moved = fitted.transform(sets)
        centered = Center().fit(x)
        known = cg.evaluate.zero_shot(centered.apply(x), labels, centered.apply(x[:2]))
        scores = [
            cg.search.make_repair(name).fit(cg.search.Known(sets)).scores("image", x, "text", x)
            for name in ("nnn", "center")
        ]
        return moved["text"], fitted.affine("text")(x), np.array(known["top_1"]), *scores

    before = computed()
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(Center().fit_transform(x), pd.DataFrame)
        after = computed()
    assert len(after) == 5
    assert all(type(each) is np.ndarray and (each == old).all() for each, old in zip(after, before, strict=True))


def test_what_failed_to_fit_is_not_fitted(x):
    for transform in (PCA(9), Whiten(9), Procrustes()):
        with pytest.raises(InputError):
            transform.fit(x, x[:, :2])
        for use in (transform.transform, lambda _, transform=transform: transform.get_feature_names_out()):
            with pytest.raises(NotFittedError):
                use(x)


def test_the_page_in_the_documentation_runs():
    page = Path(__file__).parents[2] / "docs" / "howto" / "sklearn.md"
    if not page.exists():
        pytest.skip("docs/ is not part of an installed package")
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, str(page), None, 0)
    failed, tried = doctest.DocTestRunner().run(test)
    assert tried > 10 and not failed


def test_names_are_those_of_the_last_fit(x, table):
    center = Center().fit(table)
    assert list(center.feature_names_in_) == ["a", "b", "c", "d"]
    assert list(clone(center).fit(table[["b", "a"]]).feature_names_in_) == ["b", "a"]
    with pytest.raises(ValueError, match="Feature names must be in the same order as they were in fit"):
        center.transform(table[["b", "a", "c", "d"]])
    with pytest.warns(UserWarning, match="X does not have valid feature names, but Center was fitted with"):
        center.transform(x)
    assert not hasattr(center.fit(x), "feature_names_in_")
    assert (Normalize().transform(table) == Normalize().transform(x)).all()  # never fitted, it compares nothing
