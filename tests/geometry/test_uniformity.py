import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist

from clip_geometry.geometry import alignment, cross_uniformity, matching_cosine, standard_error, uniformity
from clip_geometry.registry import InputError
from support.clouds import cone
from support.oracles_neighbors import uniformity as definition

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shift_of_length_l_has_alignment_l_squared(seed):
    rng = np.random.default_rng(seed)
    x, shift = cone(30, 5, rng), rng.normal(size=5)
    assert float(alignment(x, x + shift)) == pytest.approx((shift**2).sum(), rel=1e-12)
    assert float(alignment(x, x)) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_alignment_of_unit_rows_is_2_less_twice_their_cosine(seed):
    rng = np.random.default_rng(seed)
    x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (cone(5000, 5, rng), cone(5000, 5, rng)))
    assert float(alignment(x, y)) == pytest.approx(2 - 2 * float(matching_cosine(x, y)), rel=1e-12)


def test_the_printed_code_of_wang_and_isola():
    x = torch.from_numpy(cone(50, 6, np.random.default_rng(0)))
    y = torch.from_numpy(cone(50, 6, np.random.default_rng(1)))
    assert float(alignment(x, y)) == pytest.approx(float((x - y).norm(p=2, dim=1).pow(2).mean()), rel=1e-12)
    for t in (1, 2.0, 0.5):
        printed = torch.pdist(x, p=2).pow(2).mul(-t).exp().mean().log()
        assert float(uniformity(x, t=t)) == pytest.approx(float(printed), rel=1e-12)


def test_two_rows_have_minus_t_times_their_squared_distance():
    x = np.array([[1.0, 2.0], [4.0, 6.0]])
    assert float(uniformity(x)) == -50
    assert float(uniformity(x, t=0.1)) == pytest.approx(-2.5, rel=1e-12)


@pytest.mark.parametrize("d", [2, 3])
def test_even_rows_on_a_sphere_have_the_closed_form(d):
    """E exp(−4 + 4 cos): exp(−4) I0(4) on the circle, exp(−4) sinh(4)/4 on the sphere."""
    limit = -4 + math.log(np.i0(4) if d == 2 else math.sinh(4) / 4)
    x = np.random.default_rng(0).normal(size=(3000, d))
    # the error of a mean over pairs of 3000 rows, about 1/√n of the spread of the potential
    assert float(uniformity(x / np.linalg.norm(x, axis=1, keepdims=True))) == pytest.approx(limit, abs=0.03)


@pytest.mark.parametrize("block_size", [1, 7, 29, 64])
def test_blocks_do_not_change_the_mean(block_size):
    """Also where the last block is a single row, which has no pairs of its own."""
    x = cone(50, 4, np.random.default_rng(0))
    expected = np.log(np.exp(-2 * pdist(x, "sqeuclidean")).mean())
    assert float(uniformity(x, block_size=block_size)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-10, 1e-6, 1e-2, 0.3, 1.0, 1e3, 1e6, 1e100])
@pytest.mark.parametrize("block_size", [7, 64])
def test_every_scale_keeps_its_digits(scale, block_size):
    """Small rows have values near 0 that log(mean(exp)) would lose; large ones that of their nearest pair."""
    x = scale * (cone(40, 4, np.random.default_rng(0)) + 10)
    assert float(uniformity(x, block_size=block_size)) == pytest.approx(definition(x), rel=1e-9, abs=0)


def test_the_same_beyond_the_switch():
    """Either side of a mean potential of 1/2, where one form takes over from the other."""
    base = cone(40, 4, np.random.default_rng(0))
    for scale in np.linspace(0.1, 0.6, 11):
        assert float(uniformity(scale * base)) == pytest.approx(definition(scale * base), rel=1e-12, abs=0)


def test_coinciding_rows_are_0():
    assert float(uniformity(np.full((5, 3), 0.1))) == 0


@pytest.mark.parametrize("t", [0, -1, float("inf"), float("nan")])
def test_t_is_positive_and_finite(t):
    with pytest.raises(InputError, match=f"t = {t}; expected a positive, finite number"):
        uniformity(np.eye(3), t=t)
    with pytest.raises(InputError, match=f"t = {t}; expected a positive, finite number"):
        cross_uniformity(np.eye(3), np.eye(3), t=t)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("block_size", [3, 64])
def test_gradients(scale, block_size):
    x = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = (scale * x).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: uniformity(rows, block_size=block_size), (x,))


def test_gradients_of_copies_are_finite():
    x = torch.eye(4, dtype=torch.float64)[[0, 0, 1, 2]].requires_grad_()
    uniformity(x).backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()


def test_gradients_of_alignment():
    x, y = (torch.from_numpy(cone(6, 3, np.random.default_rng(seed))) for seed in (0, 1))
    assert torch.autograd.gradcheck(lambda rows: alignment(rows, y), (x.requires_grad_(),))


@pytest.mark.parametrize("t", [0.5, 2, 3.0])
@pytest.mark.parametrize("block_size", [1, 7, 1024])
def test_cross_modal_uniformity_leaves_matching_pairs_out(block_size, t):
    rng = np.random.default_rng(0)
    x, y = 0.3 * cone(30, 4, rng), 0.3 * cone(30, 4, rng)
    potentials = np.exp(-t * ((x[:, None] - y[None]) ** 2).sum(-1))
    expected = np.log(potentials[~np.eye(30, dtype=bool)].mean())
    assert cross_uniformity(x, y, t=t, block_size=block_size) == pytest.approx(expected, rel=1e-12)
    assert cross_uniformity(x, x, t=t) == pytest.approx(uniformity(x, t=t), rel=1e-12)


def test_t_of_cross_modal_uniformity_is_2_by_default():
    rng = np.random.default_rng(0)
    x, y = cone(20, 4, rng), cone(20, 4, rng)
    assert cross_uniformity(x, y) == cross_uniformity(x, y, t=2) != cross_uniformity(x, y, t=1)


def test_the_authors_sum_is_ours_and_a_constant():
    """log mean_i Σ_{j≠i} exp(−2‖x_i − y_j‖²) is larger by log(n − 1)."""
    rng = np.random.default_rng(0)
    x, y = cone(20, 4, rng), cone(20, 4, rng)
    sums = [sum(np.exp(-2 * ((a - b) ** 2).sum()) for j, b in enumerate(y) if j != i) for i, a in enumerate(x)]
    assert cross_uniformity(x, y) == pytest.approx(np.log(np.mean(sums)) - np.log(19), rel=1e-9)


def test_gradient_and_error_of_the_cross_modal_one():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 6, 3, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(cross_uniformity, (x, y))
    x, y = np.random.default_rng(0).normal(size=(2, 50, 4)) / 2
    expected = standard_error(cross_uniformity, x, y)
    assert standard_error("cross_uniformity", x, y) == pytest.approx(expected, rel=1e-9)


PEAK = """
import resource
import numpy as np
import clip_geometry as cg

rows = np.random.default_rng(0).normal(size=(8_000, 32))
peaks = []
for n in (2_000, 8_000):
    cg.uniformity(rows[:n])
    cg.cross_uniformity(rows[:n], rows[:n])
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(peaks[1] - peaks[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="keeping freed blocks is a habit of glibc")
def test_freed_blocks_are_reused():
    """Of 64 pairs of blocks of 8 MB, tensors that stay after each once kept a quarter of a gigabyte."""
    grown = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout
    assert int(grown) < 125_000  # kB: rows, and a few blocks
