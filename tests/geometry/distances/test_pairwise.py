import numpy as np
import pytest
import torch

from clip_geometry.geometry.distances import pairwise
from clip_geometry.geometry.distances.pairwise import distances, single_is_exact, squared_distances

FLOAT32 = 2e-6  # of single entries: 1e-7 of ‖x‖² + ‖y‖², of which they are at least a tenth


def of_differences(x, y):
    """Row by row: all differences at once take gigabytes."""
    return torch.stack([(row - y.double()).square().sum(1) for row in x.double()])


def clusters(spread, *, n=30, d=6, dtype=torch.float64):
    """Three clusters of this spread."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, d)).repeat(n // 3, axis=0) + spread * rng.normal(size=(n, d))
    return torch.from_numpy(x).to(dtype)


@pytest.mark.parametrize("spread", [0.0, 1e-8, 1e-4, 0.1, 1.0])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-10), (torch.float32, FLOAT32)])
@pytest.mark.parametrize("d", [6, 300])
def test_distances_of_near_rows_are_not_cancelled(spread, dtype, error, d):
    x = clusters(spread, d=d, dtype=dtype)
    result = squared_distances(x, x[::2])
    assert result.dtype == torch.float64
    assert torch.allclose(result, of_differences(x, x[::2]), rtol=error, atol=0)


def test_float32_products_of_float64_rows_leave_the_cancelled_ones_exact():
    x = clusters(1.0, n=600, d=50)  # so that few are near
    y = x[:5] + 1e-9
    result, exact = squared_distances(x, y, single=True), of_differences(x, y)
    assert torch.allclose(result, exact, rtol=FLOAT32, atol=0)
    near = exact < 1e-10
    assert near.sum() == 5
    assert torch.allclose(result[near], exact[near], rtol=1e-12, atol=0)
    assert not torch.allclose(result, exact, rtol=1e-12, atol=0)  # so the others are float32


@pytest.mark.parametrize("n", [40, 700])
def test_distances_that_do_not_cancel_are_those_of_float32_products(n):
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(n, 40, generator=rng), torch.randn(300, 40, generator=rng) + 9
    assert torch.allclose(distances(x, y, centre=x[0]), of_differences(x, y).sqrt(), rtol=FLOAT32, atol=0)


@pytest.mark.parametrize("n", [40, 700])
def test_rows_are_at_no_distance_from_themselves(n):
    x = torch.randn(n, 300, generator=torch.Generator().manual_seed(0))
    result = distances(x, x)
    assert not result.diagonal().any()
    assert torch.allclose(result, of_differences(x, x).sqrt(), rtol=FLOAT32, atol=0)


@pytest.mark.parametrize("n", [40, 700])
def test_one_cancelled_product_is_found_wherever_it_is(n):
    """Far rows raise the norms that most products are safely above; the near pair is found all the same."""
    x = torch.randn(n, 300, generator=torch.Generator().manual_seed(0))
    x[7] *= 30  # an outlier alone cancels nothing
    x[n - 1] = x[n - 2] + 1e-4
    assert torch.allclose(distances(x, x), of_differences(x, x).sqrt(), rtol=FLOAT32, atol=0)


def test_products_that_lose_two_digits_are_taken_again():
    """Ten times their spread from the centre squared distances are a hundredth of ‖x‖² + ‖y‖²."""
    rng = torch.Generator().manual_seed(0)
    x, y = 10 + torch.randn(90, 300, generator=rng), 10 + torch.randn(40, 300, generator=rng)
    plain = (x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T).sqrt().double()
    exact = of_differences(x, y).sqrt()
    assert not torch.allclose(plain, exact, rtol=FLOAT32, atol=0)
    assert torch.allclose(distances(x, y).double(), exact, rtol=FLOAT32, atol=0)


@pytest.mark.parametrize("name", ["ONEDNN", "DNNL"])
def test_where_onednn_may_use_bfloat16_products_are_not_trusted(name, monkeypatch):
    assert single_is_exact(torch.device("cpu"))
    monkeypatch.setenv(f"{name}_DEFAULT_FPMATH_MODE", "bf16")
    assert not single_is_exact(torch.device("cpu"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_about_a_near_centre_few_products_cancel(dtype, monkeypatch):
    x = clusters(1.0, d=50, dtype=dtype) + 1000
    pairs = []
    measured = pairwise.squared_distances_of_pairs
    monkeypatch.setattr(pairwise, "squared_distances_of_pairs", lambda *sets: pairs.append(sets) or measured(*sets))
    monkeypatch.setattr(pairwise, "DENSE", dict.fromkeys(pairwise.DENSE, 1.0))
    squared_distances(x, x)
    result = squared_distances(x, x, centre=x[0])
    assert len(pairs[0][2]) > 800
    assert len(pairs[1][2]) == 30  # each row and itself
    assert torch.allclose(result, of_differences(x, x), rtol=FLOAT32 if dtype == torch.float32 else 1e-10, atol=0)


def test_products_of_tiny_rows_are_taken_from_differences():
    """Their squares, 1e-36, still have all digits; their last terms, 1e-7 of that, have not."""
    x = 1e-18 * clusters(1.0, dtype=torch.float32)
    assert torch.allclose(squared_distances(x, x), of_differences(x, x), rtol=1e-12, atol=0)


def test_gradients():
    x, y = clusters(1.0, n=6, d=3).requires_grad_(), clusters(1e-6, n=3, d=3).requires_grad_()
    assert torch.autograd.gradcheck(squared_distances, (x, y))
    assert torch.autograd.gradcheck(lambda rows: squared_distances(rows, rows), (x,))


def test_the_gradient_of_the_second_rows_alone():
    """float32 rows, of which the plain path has no gradient."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn((5, 3), generator=generator) for _ in range(2))
    distances(x, y.requires_grad_()).sum().backward()
    apart = y.detach().double()[None] - x.double()[:, None]
    assert y.grad is not None
    assert y.grad.double().numpy() == pytest.approx((apart / apart.norm(dim=2, keepdim=True)).sum(0).numpy(), abs=1e-5)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_single_precision_is_not_trusted_where_it_was_lowered(precision):
    before = torch.get_float32_matmul_precision()
    assert single_is_exact(torch.device("cpu"))
    try:
        torch.set_float32_matmul_precision(precision)
        assert not single_is_exact(torch.device("cpu"))
    finally:
        torch.set_float32_matmul_precision(before)


def test_single_precision_is_not_trusted_in_autocast():
    with torch.autocast("cpu"):
        assert not single_is_exact(torch.device("cpu"))
