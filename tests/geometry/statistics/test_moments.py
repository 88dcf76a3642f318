"""Moments: one pass, merged in any order, or over processes, they are the same numbers."""

import numpy as np
import pytest
import torch

from clip_geometry import Moments
from clip_geometry.geometry import coordinate_spread, effective_rank, isoscore, participation_ratio
from clip_geometry.geometry.statistics.moments import scatter
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import StreamedRows
from support.clouds import cone, rotation
from support.distributed import FIELDS, reduce_moments, run_several


def far_cloud(n, d, seed, offset=1000.0):
    rng = np.random.default_rng(seed)
    return cone(n, d, rng) + offset * rng.normal(size=d)


def assert_close(actual, expected, tolerance=1e-12):
    """Within `tolerance` of the Frobenius norm, field by field."""
    assert actual.n == expected.n
    for name in FIELDS:
        a, b = getattr(actual, name), getattr(expected, name)
        assert float((a - b).norm()) <= tolerance * float(b.norm()), name


def exact(x):
    """The sums by their definition, in extended precision."""
    x = x.astype(np.longdouble)
    c = x - x.mean(0)
    square = (c**2).sum(1)
    return {"mean": x.mean(0), "M2": c.T @ c, "T": square @ c, "Q": (square**2).sum()}


@pytest.mark.parametrize("offset", [0, 1000])
def test_one_pass_is_the_definition(offset):
    x = far_cloud(5000, 7, 0, offset)  # more rows than a block
    result, expected = Moments.of(x), exact(x)
    for name in FIELDS:
        value = expected[name].astype(np.float64)
        # T is a sum of odd powers that nearly cancels; its scale is that of the sum of absolute terms
        scale = np.linalg.norm(value) if name != "T" else float(expected["Q"]) ** 0.75 * 5000**0.25
        assert np.linalg.norm(getattr(result, name).numpy() - value) <= 1e-12 * scale, name
    assert np.allclose(result.covariance, np.cov(x.T), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("offset", [0, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_merging_in_any_order_is_one_pass(seed, offset):
    """Parts of 1 to some hundred rows, with means of their own, in a random tree of additions."""
    rng = np.random.default_rng(seed)
    x = far_cloud(1200, 6, seed, offset) + np.repeat(rng.normal(size=(4, 6)), 300, axis=0)
    cuts = np.sort(rng.choice(np.arange(2, 1200), size=9, replace=False))
    parts = [Moments.of(part) for part in np.split(x, [1, *cuts])]
    rng.shuffle(parts)
    while len(parts) > 1:
        i, j = sorted(rng.choice(len(parts), size=2, replace=False))
        parts.append(parts.pop(j) + parts.pop(i))
    assert_close(parts[0], Moments.of(x))


def test_effective_rank_of_moments_takes_only_the_eigenvalues_there_can_be():
    """Five rows in 40 dimensions have four, uncentered five; the rounding of the others would add to the entropy."""
    x = np.random.default_rng(0).normal(size=(5, 40)) + 1
    for center in (True, False):
        assert float(effective_rank(Moments.of(x), center=center)) == pytest.approx(
            float(effective_rank(x, center=center)), rel=1e-10
        )


def test_merging_is_differentiable():
    x = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def merged(rows):
        return isoscore(Moments.of(rows[:2]) + Moments.of(rows[2:6]) + Moments.of(rows[6:]), unbiased=True)

    assert torch.autograd.gradcheck(merged, (x,))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Moments.of(np.ones((0, 2))), "0 rows; expected at least 1"),
        (lambda: Moments.of(np.eye(2)) + Moments.of(np.eye(3)), "dimension 2 and 3 cannot be merged"),
        (lambda: isoscore(Moments.of(np.eye(2)[:1])), "those of 1 rows with 2 columns; expected at least 2 rows"),
        (lambda: isoscore(Moments.of(np.eye(3)), unbiased=True), "of 3 rows with 3 columns; expected at least 4 rows"),
        (
            lambda: isoscore(Moments.of(np.eye(2)[:, :1])),
            "of 2 rows with 1 columns; expected at least 2 rows and 2 columns",
        ),
        (lambda: participation_ratio(Moments.of(np.full((7, 2), 0.1))), "all 7 rows of x are equal"),
        (lambda: coordinate_spread(Moments.of(np.full((7, 2), 0.1))), "all 7 rows of x are equal"),
        (lambda: Moments.of(1e100 * np.eye(3)), "the fourth powers of the rows of x about their mean exceed float64"),
        (lambda: Moments.of(1e80 + 1e71 * np.eye(3)) + Moments.of(np.eye(3)), "the fourth powers of the rows"),
        (lambda: Moments.of(1e200 * np.eye(3)), "entries up to 1e\\+200, whose squares leave float64"),
        (
            lambda: isoscore(1e100 * np.eye(6), unbiased=True),
            "fourth powers of the rows about their mean leave float64",
        ),
        (
            lambda: isoscore(Moments(3, torch.ones(2), torch.full((2, 2), torch.nan), torch.ones(2), torch.ones(()))),
            "the moments are not finite",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.slow
def test_two_processes_give_the_value_and_the_gradient_of_one(tmp_path):
    """70 and 50 rows in two processes, at ‖mean‖ = 1000 × spread."""
    world, x = 2, far_cloud(120, 5, 3) @ rotation(5, np.random.default_rng(0))
    result = run_several(reduce_moments, world, tmp_path, x)
    whole = torch.from_numpy(x).requires_grad_()
    expected = isoscore(whole, unbiased=True)
    expected.backward()
    expected = expected.detach()
    for part in result:
        assert part["n"] == 120
        assert float(part["score"]) == pytest.approx(float(expected), rel=1e-12)
        for name in FIELDS:
            reference = getattr(Moments.of(x), name)
            assert float((part[name] - reference).norm()) <= 1e-12 * float(reference.norm())
    # every process had the loss, so each gradient is that of their sum; DistributedDataParallel averages it away
    gradient = torch.cat([part["grad"] for part in result]) / world
    assert whole.grad is not None
    assert float((gradient - whole.grad).norm()) <= 1e-11 * float(whole.grad.norm())


# --- the scatter from float32 products


def binary(n, d):
    return np.random.default_rng(0).random((n, d)) < 0.3


def few_values(n, d):
    """Far from the origin in float16: a few values in each column, whose rounding errors add up."""
    return far_cloud(n, d, 0, 1000).astype(np.float16)


@pytest.mark.parametrize(
    "cloud", [lambda n, d: far_cloud(n, d, 0, 0), lambda n, d: far_cloud(n, d, 0), binary, few_values]
)
@pytest.mark.parametrize(("n", "d"), [(5000, 301), (300, 301), (40, 1030)])
def test_scatter_from_float32_products(n, d, cloud):
    """Several blocks of rows and halves of columns, against the float64 sums."""
    x = torch.from_numpy(cloud(n, d).astype(np.float32))
    result, expected = scatter(x), Moments.of(x).M2
    assert result.dtype == torch.float64
    assert 0 < float((result - expected).norm()) <= 2e-6 * float(expected.norm())
    assert float(participation_ratio(x)) == pytest.approx(float(participation_ratio(x.double())), rel=2e-7)


@pytest.mark.parametrize("scale", [1e-37, 1e-6, 1e6, 1e37])
def test_scatter_at_the_ends_of_float32(scale):
    x = torch.from_numpy(scale * cone(50, 300, np.random.default_rng(0))).float()
    assert float(isoscore(x)) == pytest.approx(float(isoscore(x.double())), rel=1e-6)


def test_scatter_of_blocks_with_means_of_their_own():
    """Rows sorted by cluster: each block is centered near its own mean, far from that of all."""
    x = torch.from_numpy(np.repeat(1000 * np.eye(4, 300), 1000, axis=0) + far_cloud(4000, 300, 0, 0)).float()
    expected = Moments.of(x).M2
    assert float((scatter(x) - expected).norm()) <= 1e-7 * float(expected.norm())


def test_scatter_far_from_the_origin_puts_right_what_the_centre_missed():
    """A float32 centre of rows at 1e5 misses their mean by .004; its square times n would show."""
    x = torch.randn(1000, 300, generator=torch.Generator().manual_seed(0)).add(1e5)
    exact = Moments.of(x.double()).M2
    assert float((scatter(x) - exact).norm() / exact.norm()) < 1e-5


@pytest.mark.parametrize("scale", [1e-120, 1e-100, 1e100, 1e139])
def test_what_needs_no_fourth_powers_takes_rows_of_any_scale(scale):
    x = cone(40, 6, np.random.default_rng(0)) * scale
    for measure in (isoscore, participation_ratio, coordinate_spread, effective_rank):
        assert float(measure(x)) == pytest.approx(float(measure(x / scale)), rel=1e-9)
    assert float(isoscore(StreamedRows.of(x))) == pytest.approx(float(isoscore(x)), rel=1e-9)
    with pytest.raises(TypeError, match="unsupported operand"):
        Moments.of(np.eye(3)) + 1


@pytest.mark.parametrize("value", [1 / 3, 1e4 / 7, 1e-3])
def test_streamed_rows_that_are_equal_have_no_spread(value):
    """Sums of float32 products may leave a rest, so that M2 is not exactly 0."""
    x = np.full((5000, 3), value, np.float32) * np.array([1, 3, 7], np.float32)
    with pytest.raises(InputError, match="all 5000 rows of x are equal"):
        isoscore(StreamedRows.of(x))
