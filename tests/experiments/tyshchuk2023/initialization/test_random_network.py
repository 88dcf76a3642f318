"""The kernel recursion against closed forms, and against networks that are really drawn."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from clip_geometry.geometry import average_cosine
from clip_geometry_experiments.tyshchuk2023.initialization import fresh_tower as theory

SEEDS = range(3)


def rows(seed, n=7, d=400):
    """Rows of different lengths with a common direction."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) + 0.6 * torch.randn(d, generator=generator)
    return x * (0.5 + torch.rand(n, 1, generator=generator, dtype=torch.float64))


@pytest.fixture(params=SEEDS)
def K(request):
    return theory.kernel(rows(request.param))


def assert_close(found, expected, bound=1e-12):
    assert float((found - expected).abs().max()) < bound * float(expected.abs().max())


# --- the kernel itself


def test_the_kernel_has_the_average_cosine_of_its_rows():
    x = rows(0)
    assert theory.kernel_average_cosine(theory.kernel(x)) == pytest.approx(float(average_cosine(x)), rel=1e-12)
    assert theory.kernel(torch.ones(2, 5)).tolist() == [[1, 1], [1, 1]]
    assert theory.kernel_average_cosine(torch.diag(torch.tensor([1.0, 0]).double())) is None


# --- activations: closed forms of E φ(u) φ(v)


def test_identity_and_square(K):
    """E uv = K_ab and E u²v² = K_aa K_bb + 2 K_ab² (Isserlis)."""
    assert_close(theory.activation(K, lambda u: u), K)
    v = K.diagonal()
    assert_close(theory.activation(K, torch.square), torch.outer(v, v) + 2 * K.square())


def test_sine_and_exponential(K):
    """E sin u sin v = e^(−(K_aa + K_bb)/2) sinh K_ab, and E e^u e^v = e^((K_aa + K_bb)/2 + K_ab)."""
    half = (K.diagonal()[:, None] + K.diagonal()) / 2
    assert_close(theory.activation(K, torch.sin), (-half).exp() * K.sinh())
    assert_close(theory.activation(K, torch.exp), (half + K).exp(), 1e-9)  # values up to e^12 at the ends


def test_the_series_of_relu_is_the_arc_cosine_kernel(K):
    """Cho & Saul 2009, to 1e-4: 128 coefficients of a kink leave 3e-5 of E φ² as one power of the cosine; the diagonal
    is exact."""
    scale = K.diagonal().sqrt().outer(K.diagonal().sqrt())
    cosines = (K / scale).clamp(-1, 1)
    expected = scale / (2 * math.pi) * ((1 - cosines**2).sqrt() + cosines * (math.pi - cosines.arccos()))
    found = theory.activation(K, torch.relu)
    assert_close(found, expected, 1e-4)
    assert_close(found.diagonal(), K.diagonal() / 2)


@pytest.mark.parametrize("function", [nn.GELU(), nn.Tanh(), nn.SiLU(), lambda u: u * torch.sigmoid(1.702 * u)])
def test_smooth_activations_are_those_of_plain_quadrature(K, function):
    """Gauss-Hermite in both variables for one pair, in numpy; to 1e-7, which 100 nodes give for tanh."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    z, w = torch.tensor(nodes), torch.tensor(weights / math.sqrt(2 * math.pi))
    (a, c), (_, b) = K[:2, :2].tolist()
    u = math.sqrt(a) * z[:, None].expand(100, 100)
    v = (c * z[:, None] / math.sqrt(a)) + math.sqrt(b - c * c / a) * z
    expected = float((w[:, None] * w * function(u) * function(v)).sum())
    assert float(theory.activation(K, function)[0, 1]) == pytest.approx(expected, rel=1e-7)


# --- networks


@pytest.mark.parametrize("function", [nn.ReLU(), nn.GELU(), nn.Tanh()])
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_networks_that_are_really_drawn_agree_on_average(function, bias):
    """Twelve networks of two layers of 1000 units. Each scatters by .012 to .018 about the prediction, so that their
    mean is good to .005: three of that are allowed. Without the term of the bias it would be .1 away."""
    x, width = rows(3), 1000
    K = theory.kernel(x)
    for fan_in in (x.shape[1], width):
        K = theory.linear(K, fan_in=fan_in, weight=1.5 / fan_in, bias=bias**2)
        K = theory.activation(K, function)
    errors = []
    for seed in range(12):
        generator, drawn = torch.Generator().manual_seed(100 + seed), x  # not the numbers that x is made of
        for _ in range(2):
            weight = torch.randn(width, drawn.shape[1], generator=generator, dtype=torch.float64)
            offset = bias * torch.randn(width, generator=generator, dtype=torch.float64)
            drawn = function(drawn @ weight.T * math.sqrt(1.5 / drawn.shape[1]) + offset)
        errors.append(float(average_cosine(drawn)) - theory.kernel_average_cosine(K))
        assert float(theory.kernel(drawn).trace() / K.trace()) == pytest.approx(1, abs=0.2)
    assert np.std(errors) < 0.03
    assert abs(np.mean(errors)) < 0.016


def test_a_residual_and_a_layer_norm_that_are_really_drawn_agree():
    """Layer norm to rounding, given the means; the sum to 5 % (√(2/4000) about .02 for each product)."""
    x = rows(1, d=4000) + 0.4  # a mean over the coordinates
    norm = nn.LayerNorm(4000, eps=0.01, dtype=torch.float64)
    found = theory.kernel(norm(x).detach())
    assert_close(found, theory.layer_norm(theory.kernel(x), x.mean(1), eps=0.01))
    assert float((found - theory.layer_norm(theory.kernel(x), torch.zeros(len(x)), eps=0.01)).abs().max()) > 0.05
    branch = x @ torch.randn(4000, 4000, generator=torch.Generator().manual_seed(2), dtype=torch.float64).T / 63
    together = theory.kernel(x) + theory.kernel(branch)
    assert_close(theory.kernel(x + branch), together, 0.05)
