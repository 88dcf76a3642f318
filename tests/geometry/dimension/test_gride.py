import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import beta

from clip_geometry.geometry import gride, gride_scales, two_nn
from clip_geometry.registry import InputError
from support.clouds import rotation
from support.oracles_neighbors import distances

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("k", "bias"), [(1, 0.08), (4, 0.04), (16, 0.03)])
def test_the_dimension_of_a_torus_is_recovered(seed, k, bias):
    """Two angles, without a boundary, rotated into ten dimensions."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0, 2 * np.pi, size=(2000, 2))
    x = np.concatenate([np.cos(angles), np.sin(angles), np.zeros((2000, 6))], axis=1) @ rotation(10, rng)
    assert gride(x, k=k) == pytest.approx(2, rel=bias)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_it_has_the_greatest_likelihood(k):
    x = np.random.default_rng(0).normal(size=(100, 3))
    sorted_distances = np.sort(distances(x), axis=1)
    mu = sorted_distances[:, 2 * k - 1] / sorted_distances[:, k - 1]

    def minus_log_likelihood(d):
        density = d * (mu**d - 1) ** (k - 1) / (beta(k, k) * mu ** ((2 * k - 1) * d + 1))
        return -np.log(density).sum()

    best = minimize_scalar(minus_log_likelihood, bounds=(0.5, 10), options={"xatol": 1e-9}).x
    assert gride(x, k=k) == pytest.approx(best, rel=1e-6)


def test_agrees_with_dadapy():
    """Values of return_id_scaling_gride(range_max=64) of dadapy 0.3.4, which puts n − 1 in the place of n."""
    x = np.random.default_rng(11).normal(size=(300, 5)) @ np.diag([1, 1, 1, 0.1, 0.01])
    found = list(gride_scales(x).values())
    dadapy = [3.210628942, 3.623400415, 3.195336234, 3.102331951, 2.985254867, 2.845826297]
    assert found[0] == pytest.approx(300 / 299 * dadapy[0], rel=1e-7)
    assert found == pytest.approx(dadapy, rel=1 / 299)


def test_noise_fills_the_smallest_scale_only():
    """A plane with noise of a hundredth of its size in eight dimensions."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(2000, 2)) @ np.eye(2, 8) + 0.01 * rng.normal(size=(2000, 8))
    found = gride_scales(x, scales=(1, 8, 64))
    assert found[1] > 4 > 2.5 > found[64] and found[1] > found[8] > found[64]


def test_scales_are_those_of_single_searches_and_too_large_ones_are_left_out():
    x = np.random.default_rng(0).normal(size=(40, 3))
    assert gride_scales(x, scales=[2, 19, 20]) == {2: gride(x, k=2), 19: gride(x, k=19)}
    with pytest.raises(InputError, match=r"scales = .* of 40 rows; expected numbers k with 2k \+ 1 ≤ 40"):
        gride_scales(x, scales=[20])
    with pytest.raises(InputError, match="scales = 0; expected a whole number from 1 on, of neighbors"):
        gride_scales(x, scales=[0])


def test_at_one_neighbor_it_is_the_likelihood_of_two_nn():
    """The mean of log μ is 1/d for both; two_nn fits a line instead, with the largest tenth left out."""
    x = np.random.default_rng(0).normal(size=(500, 3))
    r = np.sort(distances(x), axis=1)
    assert gride(x, k=1) == pytest.approx(1 / np.log(r[:, 1] / r[:, 0]).mean(), rel=1e-12)
    assert gride(x, k=1) == pytest.approx(two_nn(x), rel=0.1)


def test_a_lattice_has_no_dimension():
    angles = 2 * np.pi * np.arange(12) / 12
    x = np.eye(12)
    with pytest.raises(InputError, match="the 2-th and the 4-th nearest row are equally far from every row"):
        gride(x, k=2)
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert gride(ring, k=2) == pytest.approx(2 / 3 * 1 / np.log(np.sin(np.pi / 6) / np.sin(np.pi / 12)), rel=0.7)
