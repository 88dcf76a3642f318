import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, spearmanr

from clip_geometry.geometry import whitened_log_likelihood
from clip_geometry.registry import InputError
from support.clouds import cone

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_the_density_up_to_the_volume(seed):
    rng = np.random.default_rng(seed)
    known, x = cone(60, 5, rng), cone(20, 5, rng)
    covariance = np.cov(known.T)
    density = multivariate_normal(known.mean(0), covariance).logpdf(x)
    expected = density + np.linalg.slogdet(covariance)[1] / 2
    assert whitened_log_likelihood(x, known) == pytest.approx(expected, rel=1e-9)


def test_on_its_own_set_the_mean_says_nothing():
    for seed in SEEDS:
        x = cone(40, 6, np.random.default_rng(seed))
        expected = -(6 * np.log(2 * np.pi) + 6 * 39 / 40) / 2
        assert whitened_log_likelihood(x).mean() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("k", [1, 3])
def test_principal_directions_alone(k):
    rng = np.random.default_rng(0)
    known = rng.normal(size=(50, 6)) * [9, 5, 3, 1, 1, 1]
    axes = np.linalg.eigh(np.cov(known.T))[1][:, ::-1][:, :k]
    along = (known - known.mean(0)) @ axes
    expected = -(k * np.log(2 * np.pi) + (along**2 / along.var(0, ddof=1)).sum(1)) / 2
    assert whitened_log_likelihood(known, k=k) == pytest.approx(expected, rel=1e-9)


def test_no_linear_map_changes_it():
    rng = np.random.default_rng(0)
    known, x, matrix = cone(60, 5, rng), cone(20, 5, rng), rng.normal(size=(5, 5))
    assert whitened_log_likelihood(x @ matrix + 3, known @ matrix + 3) == pytest.approx(
        whitened_log_likelihood(x, known), rel=1e-8
    )
    assert spearmanr(whitened_log_likelihood(x, known), -np.linalg.norm(x, axis=1)).statistic > 0


def test_gradients():
    known = torch.from_numpy(cone(9, 3, np.random.default_rng(0))).requires_grad_()
    x = torch.from_numpy(cone(2, 3, np.random.default_rng(1))).requires_grad_()
    assert torch.autograd.gradcheck(whitened_log_likelihood, (x, known))


def test_fewer_directions_than_asked_for():
    x = np.random.default_rng(0).normal(size=(5, 8))
    with pytest.raises(InputError, match="the 5 rows of fitted_on vary in 4 directions; expected k ≤ 4, not 8"):
        whitened_log_likelihood(x)
    assert whitened_log_likelihood(x, k=4).shape == (5,)
    with pytest.raises(InputError, match="all 5 rows of fitted_on are equal"):
        whitened_log_likelihood(x, np.ones((5, 8)))
