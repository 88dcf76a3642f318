"""Second moments of activations against closed forms and against drawn values."""

import math

import pytest
import torch
from torch.nn import functional as F

from clip_geometry.initialization.moments import activated


def moments(scales, cosine, means=(0.0, 0.0)):
    (a, b), (m, n) = scales, means
    second = torch.tensor([[a * a + m * m, a * b * cosine + m * n], [a * b * cosine + m * n, b * b + n * n]],
                          dtype=torch.float64)  # fmt: skip
    return second, torch.tensor(means, dtype=torch.float64)


@pytest.mark.parametrize("cosine", [-0.7, 0.2, 0.85, 0.995])
def test_relu_is_the_arc_cosine_kernel(cosine):
    """Cho & Saul 2009: |x||y| (sin θ + (π − θ) cos θ) / 2π; with a mean, by quadrature, of the same ReLU."""
    second, mean = moments((0.8, 1.7), cosine)
    angle = math.acos(cosine)
    expected = 0.8 * 1.7 * (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / (2 * math.pi)
    product, average, near = activated(second, mean, second.diagonal()[:, None] * cosine, torch.relu)
    assert float(product[0, 1]) == pytest.approx(expected, rel=1e-9)
    assert float(near[0, 0]) == pytest.approx(expected * 0.8 / 1.7, rel=1e-9)
    assert float(average[1]) == pytest.approx(1.7 / math.sqrt(2 * math.pi), rel=1e-9)
    series = activated(second, mean, second[:, :0], lambda z: z.clamp(min=0))[0]
    assert float(series[0, 1]) == pytest.approx(expected, abs=2e-3)
    assert float(series[1, 1]) == pytest.approx(1.7**2 / 2, rel=1e-9)


@pytest.mark.parametrize("function", [F.gelu, F.silu, torch.sigmoid, F.hardswish, F.relu6])
def test_activations_agree_with_drawn_values(function):
    """A million pairs with means of their own: the bound is five standard errors."""
    scales, cosine, means = (0.9, 1.4), 0.6, (0.3, -0.5)
    second, mean = moments(scales, cosine, means)
    product, average, _ = activated(second, mean, second[:, :0], function)
    z = torch.randn(2, 1_000_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u = function(scales[0] * z[0] + means[0])
    v = function(scales[1] * (cosine * z[0] + math.sqrt(1 - cosine**2) * z[1]) + means[1])
    for found, drawn in ((product[0, 1], u * v), (product[1, 1], v * v), (average[0], u)):
        assert abs(float(found - drawn.mean())) < 5e-3 * float(drawn.std()) + 1e-4


def test_near_positions_are_pairs_of_their_own():
    second, mean = moments((1.0, 1.0), 0.3, (0.2, 0.2))
    product, _, near = activated(second, mean, second[:, 1:], F.gelu)
    assert float(near[0, 0]) == pytest.approx(float(product[0, 1]), rel=1e-9)
