import numpy as np
import pytest
import torch

from clip_geometry.geometry import spectral_discrepancy
from clip_geometry.registry import InputError
from support.clouds import cone, rotation


@pytest.mark.parametrize("seed", range(3))
def test_a_set_turned_shifted_and_scaled_has_its_spectrum(seed):
    rng = np.random.default_rng(seed)
    x = cone(40, 6, rng)
    assert spectral_discrepancy(x, 3 * x @ rotation(6, rng) + rng.normal(size=6)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_k_directions_of_equal_variance_against_d(k):
    """½(k(1/k − 1/8) + (8 − k)/8) = 1 − k/8."""
    square = np.concatenate([np.eye(8), -np.eye(8)])
    few = np.concatenate([np.eye(k, 8), -np.eye(k, 8)])
    assert spectral_discrepancy(square, few) == pytest.approx(1 - k / 8, abs=1e-12)
    assert spectral_discrepancy(square, few[:, :k]) == pytest.approx(1 - k / 8, abs=1e-12)  # of another dimension


def test_it_is_blind_to_directions():
    x = np.random.default_rng(0).normal(size=(30, 3))
    nothing = np.zeros_like(x)
    assert spectral_discrepancy(np.hstack([x, nothing]), np.hstack([nothing, x])) == pytest.approx(0, abs=1e-12)


def test_gradients():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    y = torch.randn(7, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(spectral_discrepancy, (x, y))


def test_equal_rows_have_no_spectrum():
    with pytest.raises(InputError, match="rows of text are equal"):
        spectral_discrepancy(cone(5, 3, np.random.default_rng(0)), np.ones((5, 3)))
