import numpy as np
import pytest
import torch

from clip_geometry.geometry import cknna, cycle_knn, linear_cka
from clip_geometry.registry import InputError
from support.clouds import cone, rotation
from support.oracles_agreement import cknna as dense
from support.oracles_agreement import cycle_knn as loops

SEEDS = range(3)


def sets(seed, n=60, d=6, e=9):
    rng = np.random.default_rng(seed)
    x = cone(n, d, rng)
    return x, x @ rng.normal(size=(d, e)) + 3 * rng.normal(size=(n, e)) + 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [2, 5, 59])
def test_any_number_of_neighbors(seed, k):
    x, y = sets(seed)
    assert cknna(x, y, k=k) == pytest.approx(dense(x, y, k), rel=1e-9)
    assert cycle_knn(x, y, k=k) == loops(x, y, k)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_all_neighbors_it_is_cka_of_the_unit_rows(seed):
    x, y = sets(seed)
    unit = [z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y)]
    assert cknna(x, y, k=59) == pytest.approx(linear_cka(*unit), rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_rotated_rows_agree_fully(seed):
    rng = np.random.default_rng(seed)
    x = cone(40, 6, rng)
    y = 2.5 * x @ rotation(6, rng)
    assert cknna(x, y) == pytest.approx(1, abs=1e-12)
    assert cycle_knn(x, y, k=1) == loops(x, y, 1) < 1  # a nearest neighbor need not have one in return


def test_independent_sets_agree_by_chance_only():
    n, k, aligned, cycles = 60, 5, [], []
    for seed in range(40):
        x, y = np.random.default_rng(seed).normal(size=(2, n, 40))
        aligned.append(cknna(x, y, k=k))
        cycles.append(cycle_knn(x, y, k=k))
    assert abs(np.mean(aligned)) < 0.1
    assert np.mean(cycles) == pytest.approx(1 - (1 - k / (n - 1)) ** k, abs=0.03)


def test_the_gradient_of_cknna():
    x, y = (torch.from_numpy(part) for part in sets(0, n=9, d=3, e=4))
    assert torch.autograd.gradcheck(lambda rows: cknna(rows, y, k=3), (x.requires_grad_(),))


def test_unusable_sets():
    x, y = sets(0)
    with pytest.raises(InputError, match="k = 1; expected a whole number from 2"):
        cknna(x, y, k=1)
    far = np.eye(12) @ rotation(12, np.random.default_rng(0))
    with pytest.raises(InputError, match="the cosines of the 3 nearest rows of text do not align with themselves"):
        cknna(x[:12], far, k=3)
