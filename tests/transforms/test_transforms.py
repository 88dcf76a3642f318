"""All transforms: scikit-learn's conventions, and what normalize and center do."""

import inspect
import re

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

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
from clip_geometry.transforms.map_file import attributes_of
from support.clouds import cone, rotation

CASES = {
    "normalize": Normalize(),
    "scale": Scale(2.5),
    "center": Center(),
    "whiten": Whiten(3),
    "pca": PCA(2),
    "pca uncentred": PCA(2, center=False),
    "all_but_the_top": AllButTheTop(2),
    "cluster_center": ClusterCenter(3),
    "procrustes": Procrustes(),
    "least_squares": LeastSquares(),
    "conceptor": Conceptor(0.5),
    "ridge": Ridge(),
    "ridge of low rank": Ridge(0.3, rank=2),
    "realign": ReAlign(),
    "realign affine": ReAlign(centroid=False),
    "isoclip": IsoCLIP(1, 1),
}
WIDTH = {"whiten": 3, "pca": 2, "pca uncentred": 2}
NOT_AFFINE = ["normalize", "cluster_center", "realign"]
AFFINE = [name for name in CASES if name not in NOT_AFFINE]


@pytest.fixture
def x():
    return cone(30, 5, np.random.default_rng(0)).astype(np.float32)


def target_for(x):
    """Aligned rows in the space of the step that needs them."""
    return x.astype(float) @ rotation(5, np.random.default_rng(1)) + 0.1


def test_every_registered_transform_is_here():
    assert {case.split()[0] for case in CASES} == {*transforms}
    for name, kind in transforms.items():
        assert kind is type(CASES[name]) and CASES[name].name == name


@pytest.mark.parametrize("case", CASES)
def test_conventions(case, x):
    before, transform = x.copy(), CASES[case]
    fresh, again = clone(transform), clone(transform)
    assert fresh.fit(x, target_for(x)) is fresh
    y = fresh.transform(x)
    assert y.dtype == np.float64 and y.shape == (30, WIDTH.get(case, 5))
    assert (x == before).all()
    assert set(again.get_params()) == set(transform.get_params()) == set(inspect.signature(type(transform)).parameters)
    assert [key for key in vars(fresh) if not key.endswith("_") and key not in transform.get_params()] == []
    assert (again.fit_transform(x, target_for(x)) == y).all()
    assert (fresh.fitted_on_, fresh.n_features_in_) == (30, 5)
    assert not [key for key in vars(transform) if key.endswith("_")]  # the original was not touched


@pytest.mark.parametrize("case", CASES)
def test_what_is_learned_is_declared(case, x):
    """The declared attributes are what a saved map holds: one that is missing there would be lost."""
    fitted = clone(CASES[case]).fit(x, target_for(x))
    learned = {key for key in vars(fitted) if key.endswith("_")}
    assert learned == set(attributes_of(type(fitted)))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["torch", "float16", "reversed", "read-only", "columns"])
def test_any_kind_of_rows(case, kind, x):
    x = x.astype(np.float16).astype(np.float32)  # values that float16 has
    given = {
        "torch": torch.from_numpy(x),
        "float16": x.astype(np.float16),
        "reversed": x[::-1].copy()[::-1],
        "read-only": x.copy(),
        "columns": np.asfortranarray(x),
    }[kind]
    if kind == "read-only":
        given.flags.writeable = False
    expected = clone(CASES[case]).fit(x, target_for(x)).transform(x)
    result = clone(CASES[case]).fit(given, target_for(x)).transform(given)
    assert np.allclose(result, expected, rtol=1e-10, atol=1e-10)  # sums over other strides round differently


@pytest.mark.parametrize("case", AFFINE)
def test_weights_are_the_map(case, x):
    fitted = clone(CASES[case]).fit(x, target_for(x))
    weights, shift = fitted.weights()
    other = cone(7, 5, np.random.default_rng(3))
    assert np.allclose(other @ weights + shift, fitted.transform(other), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", [case for case in CASES if case != "normalize"])
def test_rows_of_another_dimension(case, x):
    fitted = clone(CASES[case]).fit(x, target_for(x))
    with pytest.raises(InputError, match=r"X has 4 features, but \w+ is expecting 5 features as input"):
        fitted.transform(x[:, :4])


@pytest.mark.parametrize("case", [case for case in CASES if case != "normalize"])
def test_nothing_comes_out_before_fit(case, x):
    with pytest.raises(NotFittedError):
        clone(CASES[case]).transform(x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones(3), "expected a matrix"),
        (np.ones((3, 2), dtype=int), "dtype int64; expected floating point"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), "NaN or infinity in row 1"),
        (np.ones((0, 2)), "has 0 rows; expected at least 1"),
    ],
)
@pytest.mark.parametrize("case", CASES)
def test_bad_rows(case, x, message):
    with pytest.raises(InputError, match=message):
        clone(CASES[case]).fit(x, x).transform(x)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (AllButTheTop(True), "k of all_but_the_top = True; expected a whole number"),
        (Procrustes("nearest"), "completion of procrustes 'nearest' is unknown; known are 'identity', 'lapack'"),
        (Conceptor(-1), "alpha of conceptor = -1; expected a positive, finite number"),
        (Ridge(0), "alpha of ridge = 0; expected a positive, finite number"),
        (Ridge(rank=6), "rank of ridge = 6; expected at most 5 for 30 pairs of 5 and 5 dimensions"),
        (Scale(0), "factor of scale = 0; expected a positive, finite number"),
    ],
)
def test_wrong_parameters_are_found_when_fitting(transform, message, x):
    with pytest.raises(InputError, match=message):
        transform.fit(x, x)


@pytest.mark.parametrize("scale", [1e-130, 1e-6, 1.0, 1e6, 1e130])
def test_normalize_keeps_directions_at_any_scale(scale):
    x = np.array([[3.0, 4.0], [-5.0, 12.0]])
    expected = [[3 / 5, 4 / 5], [-5 / 13, 12 / 13]]
    assert np.allclose(Normalize().transform(scale * x), expected, rtol=1e-15)


def test_center_subtracts_the_mean_of_the_fitting_set():
    x = cone(30, 5, np.random.default_rng(0)) + 1000
    y = cone(7, 5, np.random.default_rng(1))
    center = Center().fit(x)
    assert np.abs(center.transform(x).mean(0)).max() < 1e-12
    assert np.allclose(center.transform(y), y - x.mean(0), rtol=1e-12)
    equal = np.tile(x[0], (7, 1))
    assert not Center().fit(equal).transform(equal).any()


@pytest.mark.parametrize("transform", [Scale(1e300), Scale(1e-300)])
def test_rows_that_leave_the_range_are_an_error_instead_of_infinity(transform, x):
    with pytest.raises(InputError, match=r"the result of .* has (NaN or infinity|entries up to)"):
        transform.fit(1e100 * x.astype(float)).transform(x * (1e-10 if getattr(transform, "factor", 1) < 1 else 1e10))


@pytest.mark.parametrize("k", [0, "two"])
@pytest.mark.parametrize("make", [Whiten, ClusterCenter])
def test_a_search_stops_at_a_k_that_no_rows_have(make, k, x):
    """For an error in `fit`, it would record the score nan and go on with a warning."""
    labels, chain = np.arange(30) % 2, make_pipeline(make(1), LogisticRegression())
    name = make.name.replace("_", "")
    message = f"k of {make.name} = {k!r}; expected a whole number from 1 on"
    with pytest.raises(InputError, match=re.escape(message)):
        GridSearchCV(chain, {f"{name}__k": [k, 2]}, cv=3).fit(x, labels)
    assert chain[0].k == 1  # what was refused leaves no trace
