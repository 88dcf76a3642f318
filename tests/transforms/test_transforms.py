"""All transforms: scikit-learn's conventions, and what each of them does."""

import numpy as np
import pytest
from sklearn.base import clone

from clip_geometry.registry import InputError
from clip_geometry.transforms import Center, Normalize, transforms
from support.clouds import cone


@pytest.mark.parametrize("name", transforms)
def test_conventions(name):
    x = cone(30, 5, np.random.default_rng(0)).astype(np.float32)
    before = x.copy()
    transform = transforms[name].make()
    fresh = clone(transform)
    y = transform.fit(x).transform(x)
    assert y.dtype == np.float64 and y.shape == x.shape
    assert (x == before).all()
    assert fresh.get_params() == transform.get_params()
    assert [key for key in vars(transform) if not key.endswith("_") and key not in transform.get_params()] == []
    assert (fresh.fit(x).transform(x) == y).all()


@pytest.mark.parametrize("scale", [1e-130, 1e-6, 1.0, 1e6, 1e130])
def test_normalize_keeps_directions_at_any_scale(scale):
    x = np.array([[3.0, 4.0], [-5.0, 12.0]])
    expected = [[3 / 5, 4 / 5], [-5 / 13, 12 / 13]]
    assert np.allclose(Normalize().transform(scale * x), expected, rtol=1e-15)


def test_zero_rows_cannot_be_normalised():
    with pytest.raises(InputError, match=r"zero row \(row 1\)"):
        Normalize().transform(np.array([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]))


def test_center_subtracts_the_mean_of_the_fitting_set():
    x = cone(30, 5, np.random.default_rng(0)) + 1000
    y = cone(7, 5, np.random.default_rng(1))
    center = Center().fit(x)
    assert np.abs(center.transform(x).mean(0)).max() < 1e-12
    assert np.allclose(center.transform(y), y - x.mean(0), rtol=1e-12)
    assert center.fitted_on_ == 30
    equal = np.tile(x[0], (7, 1))
    assert not Center().fit(equal).transform(equal).any()
    with pytest.raises(InputError, match="rows have dimension 4, but the mean was fitted on dimension 5"):
        center.transform(y[:, :4])


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones(3), "expected a matrix"),
        (np.ones((3, 2), dtype=int), "dtype int64; expected floating point"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), "NaN or infinity in row 1"),
        (np.ones((0, 2)), "rows has 0 rows; expected at least 1"),
    ],
)
@pytest.mark.parametrize("name", transforms)
def test_bad_rows(name, x, message):
    with pytest.raises(InputError, match=message):
        transforms[name].make().fit(x).transform(x)
