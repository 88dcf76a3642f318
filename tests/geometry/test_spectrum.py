import numpy as np
import pytest

from clip_geometry.geometry import (
    alpha_req,
    coordinate_std,
    nesum,
    singular_values,
)
from clip_geometry.registry import InputError
from support.clouds import cone, rotation


def with_variances(variances, n, rng):
    """Rows whose covariance has exactly these eigenvalues."""
    d = len(variances)
    basis = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, d))]))[0][:, 1:]
    return basis * np.sqrt(variances) @ rotation(d, rng) + rng.normal(size=d)


def test_only_the_chosen_ranks_count():
    variances = np.arange(1, 31.0) ** -1
    variances[[0, 29]] = 5, 1e-3
    x = with_variances(variances, 80, np.random.default_rng(0))
    assert alpha_req(x, first=2, last=29) == pytest.approx(1, rel=1e-9)
    assert alpha_req(x) > 1.1
    assert alpha_req(x, first=2, last=1000) == alpha_req(x, first=2)


def test_agrees_with_the_authors_fit():
    """stringer_get_powerlaw of the α-ReQ code, whose ranks count from 0, in other words."""
    values = np.sort(np.random.default_rng(0).gamma(1, size=40))[::-1]
    ranks = np.arange(11, 31)
    y, at = np.log(values[ranks]), ranks + 1
    x = np.stack([-np.log(at), np.ones(20)], axis=1)
    w = 1 / at[:, None]
    expected = np.linalg.solve(x.T @ (x * w), (w * x).T @ y)[0]
    rows = with_variances(values, 90, np.random.default_rng(1))
    assert alpha_req(rows, first=12, last=31) == pytest.approx(expected, rel=1e-9)


def test_too_few_eigenvalues():
    line = np.outer(np.arange(6.0), [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="1 eigenvalues are not zero; alpha_req needs two from rank 1 on"):
        alpha_req(line)
    with pytest.raises(InputError, match="last = 3; expected a whole number from 4"):
        alpha_req(np.random.default_rng(0).normal(size=(9, 8)), first=3, last=3)
    for function in (alpha_req, nesum):
        with pytest.raises(InputError, match="all 5 rows of x are equal"):
            function(np.ones((5, 3)))


def test_coordinate_std_is_numpys():
    x = cone(40, 6, np.random.default_rng(0)) + 1000
    assert np.allclose(coordinate_std(x), x.std(0), rtol=1e-12)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("shape", [(30, 6), (5, 12)])
def test_singular_values_are_scipys(center, shape):
    from scipy.linalg import svdvals

    x = cone(*shape, np.random.default_rng(0))
    assert np.allclose(singular_values(x, center=center), svdvals(x - center * x.mean(0)), rtol=1e-10, atol=1e-10)
