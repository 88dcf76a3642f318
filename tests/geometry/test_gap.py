import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score

from clip_geometry.geometry import modality_gap, modality_silhouette, relative_modality_gap
from clip_geometry.registry import InputError
from support.clouds import cone

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shift_of_length_l_is_a_gap_of_l(seed):
    rng = np.random.default_rng(seed)
    x, shift = cone(30, 5, rng), rng.normal(size=5)
    assert float(modality_gap(x, x + shift)) == pytest.approx(np.linalg.norm(shift), rel=1e-12)


def test_the_sets_may_have_different_numbers_of_rows():
    rng = np.random.default_rng(0)
    x, y = cone(30, 5, rng), cone(12, 5, rng)
    expected = silhouette_score(np.concatenate([x, y]), [0] * 30 + [1] * 12)
    assert float(modality_silhouette(x, y)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_mixed_modalities_have_no_silhouette(seed):
    x = np.random.default_rng(seed).normal(size=(400, 8))
    assert abs(float(modality_silhouette(x[:200], x[200:]))) < 0.01


@pytest.mark.parametrize("seed", SEEDS)
def test_coinciding_pairs_have_no_relative_gap_and_random_ones_half(seed):
    rng = np.random.default_rng(seed)
    x = cone(400, 8, rng)
    assert float(relative_modality_gap(x, 2.5 * x)) == pytest.approx(0, abs=1e-12)
    assert float(relative_modality_gap(x, x[rng.permutation(400)])) == pytest.approx(0.5, abs=0.02)


def test_tight_and_far_modalities_have_relative_gap_towards_1():
    x = np.array([[1.0, 1e-4, 0], [1.0, -1e-4, 0]])
    y = np.array([[-1.0, 0, 1e-4], [-1.0, 0, -1e-4]])
    m, within = 1.0, 1e-8  # D of opposite rows; D = (1 − cos)/2 of rows at angle 2e-4
    assert 1 - float(relative_modality_gap(x, y)) == pytest.approx(within / (m + within), rel=1e-6)


def test_nothing_to_compare_is_an_error():
    for seed in range(20):
        x = np.tile(np.random.default_rng(seed).normal(size=5), (7, 1))  # unit length is then a rounded one
        with pytest.raises(InputError, match="0/0"):
            relative_modality_gap(x, 3 * x)


def test_the_cosine_gap_is_exact_near_0_and_refuses_a_mean_that_centering_left():
    x = cone(30, 5, np.random.default_rng(0))
    mean = x.mean(0)
    across = np.linalg.svd(mean[None])[2][1]  # of unit length, orthogonal to the mean
    found = modality_gap(x, x + 1e-6 * np.linalg.norm(mean) * across, metric="cosine")
    assert found == pytest.approx(0.5e-12, rel=1e-3)
    for dtype in (np.float32, np.float64):
        with pytest.raises(InputError, match="the mean of text is zero, as after centering, and has no direction"):
            modality_gap(x, (x - mean).astype(dtype), metric="cosine")


def test_gradients():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    y = torch.randn(5, 4, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(lambda rows: modality_gap(rows, y), (x,))
