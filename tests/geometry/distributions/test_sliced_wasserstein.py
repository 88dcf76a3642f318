import numpy as np
import ot
import pytest
import torch

from clip_geometry.geometry import gap_shift_share, modality_gap, sliced_wasserstein
from clip_geometry.geometry.statistics.projections import random_directions
from clip_geometry.registry import InputError
from support.clouds import cone, rotation

SEEDS = range(3)


@pytest.mark.parametrize(("n", "m"), [(40, 40), (40, 31), (7, 60)])
def test_it_is_pots_along_the_same_directions_but_for_the_means(n, m):
    """Whose part POT takes along the same directions, and we over all of them."""
    rng = np.random.default_rng(n * m)
    x, y = cone(n, 5, rng), cone(m, 5, rng)
    axes = random_directions(5, 30, 7).numpy()
    theirs = ot.sliced_wasserstein_distance(x, y, projections=axes, p=2) ** 2
    gap = x.mean(0) - y.mean(0)
    theirs += (gap**2).sum() / 5 - ((gap @ axes) ** 2).mean()
    assert sliced_wasserstein(x, y, directions=30, seed=7) ** 2 == pytest.approx(theirs, rel=1e-9)


def test_directions_are_orthonormal_as_far_as_they_can_be():
    axes = random_directions(4, 10, 0)
    assert axes.shape == (4, 10)
    assert torch.allclose(axes.norm(dim=0), torch.ones(10, dtype=torch.float64))
    assert torch.allclose(axes[:, 4:8].T @ axes[:, 4:8], torch.eye(4, dtype=torch.float64), atol=1e-12)
    assert not torch.equal(random_directions(4, 10, 1), axes)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shift_alone_is_the_gap_over_the_root_of_d(seed):
    rng = np.random.default_rng(seed)
    x, shift = cone(30, 5, rng), rng.normal(size=5)
    assert sliced_wasserstein(x, x[::-1] + shift) == pytest.approx(np.linalg.norm(shift) / np.sqrt(5), rel=1e-9)
    assert sliced_wasserstein(x, x[::-1] + shift, center=True) == pytest.approx(0, abs=1e-12)
    assert gap_shift_share(x, x[::-1] + shift) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_parts_make_the_whole(seed):
    rng = np.random.default_rng(seed)
    x, y = cone(30, 5, rng), 1.7 * cone(44, 5, rng)
    whole, rest = sliced_wasserstein(x, y) ** 2, sliced_wasserstein(x, y, center=True) ** 2
    assert whole - rest == pytest.approx(modality_gap(x, y) ** 2 / 5, rel=1e-9)
    assert gap_shift_share(x, y) == pytest.approx(1 - rest / whole, rel=1e-9)
    assert gap_shift_share(x - x.mean(0), y - y.mean(0)) == pytest.approx(0, abs=1e-12)


def test_twice_as_wide_a_gaussian_is_its_spread_away():
    """W₂ of N(0, 1) and N(0, 2²) is 1 along every direction."""
    x, y = np.random.default_rng(0).normal(size=(2, 20000, 3))
    assert sliced_wasserstein(x, 2 * y, directions=12) == pytest.approx(1, rel=0.02)


def test_a_rotation_changes_it_by_the_draw_of_the_directions_only():
    rng = np.random.default_rng(0)
    x, y = cone(200, 6, rng), 1.5 * cone(200, 6, rng)
    q = rotation(6, rng)
    found = [sliced_wasserstein(x @ q, y @ q, center=True, directions=count) for count in (6, 12, 6000)]
    expected = sliced_wasserstein(x, y, center=True, directions=6000)
    assert found[2] == pytest.approx(expected, rel=0.01)
    assert found[0] != pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("m", [6, 5])
def test_gradients(m):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    y = torch.randn(m, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    for function in (sliced_wasserstein, gap_shift_share):
        assert torch.autograd.gradcheck(lambda a, b, each=function: each(a, b, directions=5), (x, y))


def test_equal_sets_have_no_gap_to_divide():
    x = cone(30, 5, np.random.default_rng(0))
    assert sliced_wasserstein(x, x[::-1]) == pytest.approx(0, abs=1e-12)
    with pytest.raises(InputError, match="image and text are the same set of rows; there is no gap to divide"):
        gap_shift_share(x + 100, x[::-1] + 100)
