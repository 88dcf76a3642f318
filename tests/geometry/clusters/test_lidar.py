import numpy as np
import pytest
import torch

from clip_geometry.geometry import lidar, pair_lidar
from clip_geometry.registry import InputError
from support.oracles_classes import lidar as by_covariances

SEEDS = range(3)


def classes_in(directions, d, count, each, seed):
    """Class means of equal variance in so many directions, unit noise of unequal variances around them."""
    rng = np.random.default_rng(seed)
    labels, scales = np.arange(count * each) % count, np.linspace(1, 3, d)
    means = 20 * rng.normal(size=(count, directions)) @ np.eye(directions, d)
    return (means[labels] + rng.normal(size=(len(labels), d))) * scales, labels


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("directions", [1, 3, 6])
def test_it_counts_the_directions_of_class_means(seed, directions):
    """However unequal the axes are: the spread within is divided out."""
    x, labels = classes_in(directions, 8, 200, 10, seed)
    assert lidar(x, labels) == pytest.approx(directions, rel=0.05, abs=0.1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("delta", [1e-6, 0.1])
def test_the_diagonal(seed, delta):
    x, labels = classes_in(3, 8, 6, 3, seed)
    assert lidar(x, labels, delta=delta) == pytest.approx(by_covariances(x, labels, delta), rel=1e-9)


def test_pairs_are_classes_of_two():
    x, y = np.random.default_rng(0).normal(size=(2, 30, 5))
    y = x + 0.3 * y
    assert pair_lidar(x, y) == pytest.approx(lidar(np.concatenate([x, y]), [*range(30), *range(30)]), rel=1e-12)


def test_a_gap_lies_within_pairs_and_hides_its_direction():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    y = x + 0.1 * rng.normal(size=(200, 4))
    assert pair_lidar(x, y) > 3.8
    assert pair_lidar(x, y + 10 * np.eye(4)[0]) == pytest.approx(3, abs=0.1)


def test_gradients():
    x, labels = classes_in(3, 4, 4, 3, 0)
    assert torch.autograd.gradcheck(lambda rows: lidar(rows, labels), (torch.from_numpy(x).requires_grad_(),))


def test_unusable_classes():
    x = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(InputError, match="all rows are the means of their 6 classes"):
        pair_lidar(x, x)
    with pytest.raises(InputError, match="the means of the 6 classes are all equal"):
        pair_lidar(x, -x)
    with pytest.raises(InputError, match="delta = 0; expected a positive, finite number"):
        lidar(x, [0, 1] * 3, delta=0)
