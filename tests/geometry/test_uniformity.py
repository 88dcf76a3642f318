import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist

from clip_geometry.geometry import alignment, cross_uniformity, uniformity
from clip_geometry.geometry.statistics import kernels
from clip_geometry.registry import InputError
from support.clouds import cone
from support.oracles_neighbors import uniformity as definition


def test_the_printed_code_of_wang_and_isola():
    x = torch.from_numpy(cone(50, 6, np.random.default_rng(0)))
    y = torch.from_numpy(cone(50, 6, np.random.default_rng(1)))
    assert float(alignment(x, y)) == pytest.approx(float((x - y).norm(p=2, dim=1).pow(2).mean()), rel=1e-12)
    for t in (1, 2.0, 0.5):
        printed = torch.pdist(x, p=2).pow(2).mul(-t).exp().mean().log()
        assert float(uniformity(x, t=t)) == pytest.approx(float(printed), rel=1e-12)


@pytest.mark.parametrize("block_size", [1, 7, 29, 64])
def test_blocks_do_not_change_the_mean(block_size, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK", block_size)
    """Also where the last block is a single row, which has no pairs of its own."""
    x = cone(50, 4, np.random.default_rng(0))
    expected = np.log(np.exp(-2 * pdist(x, "sqeuclidean")).mean())
    assert float(uniformity(x)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-10, 1e-6, 1e-2, 0.3, 1.0, 1e3, 1e6, 1e100])
@pytest.mark.parametrize("block_size", [7, 64])
def test_every_scale_keeps_its_digits(scale, block_size, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK", block_size)
    """Small rows have values near 0 that log(mean(exp)) would lose; large ones that of their nearest pair."""
    x = scale * (cone(40, 4, np.random.default_rng(0)) + 10)
    assert float(uniformity(x)) == pytest.approx(definition(x), rel=1e-9, abs=0)


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


def test_gradients_of_copies_are_finite():
    x = torch.eye(4, dtype=torch.float64)[[0, 0, 1, 2]].requires_grad_()
    uniformity(x).backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()


@pytest.mark.parametrize("t", [0.5, 2, 3.0])
@pytest.mark.parametrize("block_size", [1, 7, 1024])
def test_cross_modal_uniformity_leaves_matching_pairs_out(block_size, t, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK", block_size)
    rng = np.random.default_rng(0)
    x, y = 0.3 * cone(30, 4, rng), 0.3 * cone(30, 4, rng)
    potentials = np.exp(-t * ((x[:, None] - y[None]) ** 2).sum(-1))
    expected = np.log(potentials[~np.eye(30, dtype=bool)].mean())
    assert cross_uniformity(x, y, t=t) == pytest.approx(expected, rel=1e-12)
    assert cross_uniformity(x, x, t=t) == pytest.approx(uniformity(x, t=t), rel=1e-12)


PEAK = """
import resource
import numpy as np
import clip_geometry as cg

rows = np.random.default_rng(0).normal(size=(8_000, 32))
peaks = []
for n in (2_000, 8_000):
    cg.geometry.uniformity(rows[:n])
    cg.geometry.cross_uniformity(rows[:n], rows[:n])
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(peaks[1] - peaks[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="keeping freed blocks is a habit of glibc")
def test_freed_blocks_are_reused():
    """Of 64 pairs of blocks of 8 MB, tensors that stay after each once kept a quarter of a gigabyte."""
    grown = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout
    assert int(grown) < 125_000  # kB: rows, and a few blocks


SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shift_of_length_l_has_alignment_l_squared(seed):
    rng = np.random.default_rng(seed)
    x, shift = cone(30, 5, rng), rng.normal(size=5)
    assert float(alignment(x, x + shift)) == pytest.approx((shift**2).sum(), rel=1e-12)
    assert float(alignment(x, x)) == 0


def test_two_rows_have_minus_t_times_their_squared_distance():
    x = np.array([[1.0, 2.0], [4.0, 6.0]])
    assert float(uniformity(x)) == -50
    assert float(uniformity(x, t=0.1)) == pytest.approx(-2.5, rel=1e-12)
