import numpy as np
import pytest
from sklearn.base import clone

from clip_geometry.registry import InputError
from clip_geometry.transforms import (
    PCA,
    Center,
    ClusterCenter,
    Compose,
    LeastSquares,
    Normalize,
    Procrustes,
    Scale,
    Whiten,
)
from clip_geometry.transforms.chain import affine_chain
from support.clouds import cone


@pytest.fixture
def x():
    return cone(40, 6, np.random.default_rng(0))


@pytest.fixture
def y():
    return cone(9, 6, np.random.default_rng(1))


def test_each_step_sees_what_the_ones_before_it_make(x, y):
    steps = [Normalize(), Whiten(4), PCA(2)]
    composed = Compose(steps).fit(x)
    rows, new = x, y
    for step in steps:
        fitted = clone(step).fit(rows)
        rows, new = fitted.transform(rows), fitted.transform(new)
    assert (composed.transform(y) == new).all()
    assert (composed.fitted_on_, composed.n_features_in_) == (40, 6)
    assert not hasattr(steps[1], "mean_")  # the steps given stay as they are


def test_a_step_between_two_sets_gets_the_target(x):
    target = x[:, ::-1] + 0.1
    composed = Compose([Center(), Procrustes()]).fit(x, target)
    assert np.allclose(composed.steps_[1].W_, Procrustes().fit(x - x.mean(0), target).W_, atol=1e-12)
    nested = Compose([Center(), Compose([LeastSquares()])]).fit(x, target)
    assert np.allclose(nested.transform(x), LeastSquares().fit(x - x.mean(0), target).transform(x - x.mean(0)))
    with pytest.raises(InputError, match="procrustes maps one set onto another"):
        Compose([Center(), Procrustes()]).fit(x)


@pytest.mark.parametrize(
    ("steps", "unit_rows_in", "renormalise"),
    [
        ([], False, False),
        ([Normalize()], False, True),
        ([Center()], False, False),
        ([Normalize(), Whiten(4)], True, False),
        ([Normalize(), Scale(3.0), Center()], True, False),
        ([Normalize(), Normalize(), Center(), PCA(3), Normalize()], True, True),
        ([Whiten(5), PCA(2, center=False), Normalize(), Normalize()], False, True),
        ([Compose([Center()]), PCA(2)], False, False),
    ],
)
def test_affine_chains_are_w_and_b(x, y, steps, unit_rows_in, renormalise):
    composed = Compose(steps).fit(x)
    affine = composed.affine()
    assert (affine.unit_rows_in, affine.renormalise) == (unit_rows_in, renormalise)
    rows = y / np.linalg.norm(y, axis=1, keepdims=True) if unit_rows_in else y
    rows = rows @ affine.W + affine.b
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True) if renormalise else rows
    assert np.allclose(rows, composed.transform(y), rtol=1e-10, atol=1e-10)
    assert np.allclose(affine(y), composed.transform(y), rtol=1e-10, atol=1e-10)


def test_what_is_no_affine_map_says_why(x):
    with pytest.raises(InputError, match=r"a normalize stands between affine steps \(before pca\).*first and last"):
        Compose([Center(), Normalize(), PCA(2)]).fit(x).affine()
    with pytest.raises(InputError, match="cluster_center is no affine map"):
        Compose([Normalize(), ClusterCenter(2)]).fit(x).affine()
    with pytest.raises(InputError, match="compose makes rows unit length"):
        Compose([Center(), Compose([Normalize()])]).fit(x).affine()


def test_a_square_map_after_a_shift_moves_the_shift_too():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)) + 5, rng.normal(size=(30, 4))
    chain = [Center().fit(x), Procrustes().fit(x, y)]
    assert np.allclose(affine_chain(chain, 4)(x), chain[1].transform(chain[0].transform(x)), rtol=0, atol=1e-12)
