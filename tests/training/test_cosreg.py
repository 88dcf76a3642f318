"""CosReg against the double loop."""

import pytest
import torch

from clip_geometry.geometry import average_cosine
from clip_geometry.registry import InputError
from clip_geometry.training import CosReg


def cloud(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.7


def double_loop(rows):
    """(Σ_ij cos(w_i, w_j) − N)/N², pair by pair."""
    n = len(rows)
    cosines = [torch.nn.functional.cosine_similarity(a, b, dim=0, eps=1e-300) for a in rows for b in rows]
    return (torch.stack(cosines).sum() - n) / n**2


@pytest.mark.parametrize("lambda_", [1.0, -2.5])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_double_loop_and_its_gradient(lambda_, seed):
    x = cloud(12, 5, seed=seed).requires_grad_()
    found, expected = CosReg(lambda_)(x), lambda_ * double_loop(x)
    assert float(found.detach()) == pytest.approx(float(expected.detach()), abs=1e-13)
    (ours,), (theirs,) = torch.autograd.grad(found, x), torch.autograd.grad(expected, x)
    assert float((ours - theirs).norm()) <= 1e-12 * float(theirs.norm())
    assert torch.autograd.gradcheck(CosReg(lambda_), (x,))


def test_padding_is_left_out_and_several_layers_are_stacked():
    layers = [cloud(2, 4, 5, seed=k) for k in range(2)]
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    layers[0][0, 3] = 0  # a zero row in the padding is none of our business
    rows = torch.cat([layer[mask.bool()] for layer in layers])
    assert float(CosReg(1.0)(layers, mask)) == pytest.approx(float(double_loop(rows)), abs=1e-13)
    assert float(CosReg(1.0)(layers[1])) == pytest.approx(float(double_loop(layers[1].view(-1, 5))), abs=1e-13)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_half_precision_autocast_and_rows_of_any_scale(scale):
    x = cloud(50, 8).float() * scale
    expected = float(CosReg(1.0)(x.double()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert float(CosReg(1.0)(x)) == pytest.approx(expected, abs=1e-6)
    found = CosReg(1.0)(x.bfloat16().requires_grad_())
    assert found.dtype == torch.float32
    assert float(found.detach()) == pytest.approx(float(CosReg(1.0)(x.bfloat16().double())), abs=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CosReg(float("inf")), "lambda_ = inf; expected a finite weight"),
        (lambda: CosReg("a"), "lambda_ = 'a'; expected a finite weight"),
        (lambda: CosReg(1.0)(torch.eye(3) * torch.tensor([[1.0], [0.0], [1.0]])), "row 1 of the hidden states is zero"),
        (
            lambda: CosReg(1.0)(torch.eye(3) * torch.tensor([[1.0], [1e-40], [1.0]])),
            "row 1 of the hidden states is so short",
        ),
        (lambda: CosReg(1.0)(cloud(2, 3, 4), torch.zeros(2, 3).int()), "mask leaves out all 6 rows"),
    ],
)
def test_errors(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("n", [2, 12])
def test_is_the_average_cosine_but_for_the_number_of_pairs(n):
    x = cloud(n, 5)
    assert float(CosReg(3.0)(x)) == pytest.approx(3 * float(average_cosine(x)) * (n - 1) / n, abs=1e-13)
