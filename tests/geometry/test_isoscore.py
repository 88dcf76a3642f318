import numpy as np
import pytest
import torch

from clip_geometry.geometry import isoscore, participation_ratio
from clip_geometry.registry import InputError
from support.clouds import cone, rotation


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_isoscore_package(seed):
    from IsoScore import IsoScore

    x = cone(300, 12, np.random.default_rng(seed))
    published = float(IsoScore.IsoScore(x.astype("float32")))
    assert float(isoscore(x)) == pytest.approx(published, abs=1e-5)  # the package works in float32


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_rank_r_with_equal_variances_has_ratio_r(rank):
    d = 8
    basis = rotation(d, np.random.default_rng(rank))[:rank]
    x = np.concatenate([basis, -basis]) * 3.7 + 11.0
    assert float(participation_ratio(x)) == pytest.approx(rank, rel=1e-12)
    assert float(isoscore(x)) == pytest.approx((rank - 1) / (d - 1), abs=1e-12)


@pytest.mark.parametrize("n", [64, 512])
def test_small_samples_are_biased_low(n):
    """n isotropic Gaussian rows score about n/(n + d): .108 and .499 at d = 512 (issue of the geometry)."""
    scores = [float(isoscore(np.random.default_rng(seed).normal(size=(n, 512)))) for seed in range(3)]
    assert np.mean(scores) == pytest.approx({64: 0.108, 512: 0.499}[n], abs=0.002)


def test_no_spread_is_an_error_even_where_rounding_would_make_some():
    x = np.full((5, 3), 0.1) * np.array([1, 3, 7.7])
    for score in (participation_ratio, isoscore):
        with pytest.raises(InputError, match="all 5 rows of x are equal"):
            score(x)


def test_one_column_is_an_error():
    with pytest.raises(InputError, match="one column"):
        isoscore(np.random.default_rng(0).normal(size=(5, 1)))


def test_gradients():
    x = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(isoscore, (x,))
