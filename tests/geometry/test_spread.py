import numpy as np
import pytest

from clip_geometry.geometry import coordinate_spread, coordinate_std, singular_values
from clip_geometry.registry import InputError
from support.clouds import cone


def test_coordinate_std_is_numpys():
    x = cone(40, 6, np.random.default_rng(0)) + 1000
    assert np.allclose(coordinate_std(x), x.std(0), rtol=1e-12)


def test_one_rogue_dimension_has_the_largest_spread_there_is():
    x = np.zeros((10, 5))
    x[:, 2] = np.arange(10)
    assert float(coordinate_spread(x)) == pytest.approx(np.sqrt(5 - 1))


def test_equal_coordinates_have_no_spread():
    x = np.random.default_rng(0).normal(size=(20, 1)).repeat(4, axis=1)
    assert float(coordinate_spread(x)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("shape", [(30, 6), (5, 12)])
def test_singular_values_are_scipys(center, shape):
    from scipy.linalg import svdvals

    x = cone(*shape, np.random.default_rng(0))
    assert np.allclose(singular_values(x, center=center), svdvals(x - center * x.mean(0)), rtol=1e-10, atol=1e-10)


def test_errors():
    with pytest.raises(InputError, match="1 column; expected at least 2"):
        coordinate_spread(np.random.default_rng(0).normal(size=(5, 1)))
    with pytest.raises(InputError, match="rows of x are equal"):
        coordinate_spread(np.ones((4, 3)))
