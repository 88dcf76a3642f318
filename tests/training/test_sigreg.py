"""SIGReg against the authors' sketch, and what it does to rows."""

import math

import numpy as np
import pytest
import torch

from clip_geometry.training import SIGReg
from clip_geometry.training.losses import epps_pulley


def cloud(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.7


def sketch(rows, directions):
    """Algorithm 1 of LeJEPA: the trapezoidal rule over 17 points from −5 to 5, complex exponentials, times n."""
    t = torch.linspace(-5, 5, 17, dtype=torch.float64)
    normal = torch.exp(-0.5 * t**2)
    characteristic = (1j * (rows @ directions).unsqueeze(2) * t).exp().mean(0)
    difference = (characteristic - normal).abs().square() * normal
    return (torch.trapezoid(difference, t, dim=1) * len(rows)).mean()


def directions_of(d, count, seed):
    drawn = torch.randn(d, count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=0)


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_sketch_and_its_gradient(seed):
    x = cloud(12, 5, seed=seed).requires_grad_()
    penalty = SIGReg(0.3, directions=6, seed=seed).eval()
    found, expected = penalty(x), 0.3 * sketch(x, directions_of(5, 6, seed))
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    (ours,), (theirs,) = torch.autograd.grad(found, x), torch.autograd.grad(expected, x)
    assert float((ours - theirs).norm()) <= 1e-12 * float(theirs.norm())
    assert torch.autograd.gradcheck(penalty, (x,))


def test_each_step_of_training_has_new_directions_and_a_resumed_run_goes_on_with_them():
    x, penalty = cloud(12, 5), SIGReg(1.0, directions=4)
    values = [float(penalty(x)) for _ in range(3)]
    assert len(set(values)) == 3
    resumed = SIGReg(1.0, directions=4)
    resumed.load_state_dict(penalty.state_dict())
    assert float(resumed(x)) == float(penalty(x)) not in values
    penalty.eval()
    assert float(penalty(x)) == float(penalty(x))


def test_padding_is_left_out_and_low_precision_is_raised():
    states, mask = cloud(2, 4, 5), torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    penalty = SIGReg(1.0, directions=8).eval()
    assert float(penalty(states, mask)) == pytest.approx(float(penalty(states[mask.bool()])), rel=1e-12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = penalty(states.bfloat16())
    assert low.dtype == torch.float32
    assert float(low) == pytest.approx(float(penalty(states.bfloat16().double())), rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_the_quadrature_is_the_integral(seed):
    """In closed form: the integral of each product of exponentials is that of a Gaussian (Epps & Pulley 1983)."""
    values = np.random.default_rng(seed).normal(size=40) * 1.1 + 0.3
    apart = np.exp(-((values[:, None] - values) ** 2) / 2).sum() / 40
    exact = math.sqrt(2 * math.pi) * (apart - math.sqrt(2) * np.exp(-(values**2) / 4).sum() + 40 / math.sqrt(3))
    assert float(epps_pulley(torch.from_numpy(values)[:, None])) == pytest.approx(exact, rel=2e-3)


def test_it_makes_rows_an_isotropic_gaussian():
    rows = (cloud(200, 4) * torch.tensor([1.4, 1, 0.5, 0.3])).requires_grad_()
    penalty, optimizer = SIGReg(1.0, directions=32), torch.optim.Adam([rows], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        penalty(rows).backward()
        optimizer.step()
    moved = rows.detach()
    variances = torch.linalg.eigvalsh(moved.T.cov())  # 0.1 to 2 at first
    assert float(moved.mean(0).norm()) < 0.2
    assert float(variances.amin()) > 0.85 and float(variances.amax()) < 1.6
