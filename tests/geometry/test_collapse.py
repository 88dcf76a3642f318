import numpy as np
import pytest

from clip_geometry.geometry import neural_collapse
from clip_geometry.registry import InputError
from support.clouds import rotation

SEEDS = range(3)


def collapsed(classes, d, each, width, seed):
    """Rows around the corners of a rotated simplex, with Gaussian noise of this width, and the corners."""
    rng = np.random.default_rng(seed)
    corners = (np.eye(classes, d) - np.eye(classes, d).mean(0)) @ rotation(d, rng)
    labels = np.arange(classes * each) % classes
    return corners[labels] + width * rng.normal(size=(len(labels), d)) + rng.normal(size=d), labels, corners


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("classes", [2, 5])
def test_a_simplex_is_full_collapse(seed, classes):
    x, labels, corners = collapsed(classes, 8, 20, 0, seed)
    assert neural_collapse(x, labels, 7 * corners + 3)[:4] == pytest.approx((0, 0, 0, 0), abs=1e-12)
    assert neural_collapse(corners[labels], labels, 7 * corners).nc4 == 0


def test_classes_count_alike_whatever_their_size():
    x, labels, _ = collapsed(3, 6, 30, 0.3, 0)
    copies = np.concatenate([np.arange(90), *[np.flatnonzero(labels == 0)] * 4])
    result, whole = neural_collapse(x[copies], labels[copies]), neural_collapse(x, labels)
    assert result[:3] == pytest.approx(whole[:3], rel=1e-9)


def test_self_duality_and_decisions():
    x, labels, corners = collapsed(3, 6, 200, 0.05, 0)
    x, swapped = x - x.mean(0), corners[[1, 0, 2]]
    result = neural_collapse(x, labels, swapped)
    means = np.array([x[labels == c].mean(0) for c in range(3)])
    means, text = means - means.mean(0), swapped - swapped.mean(0)
    assert result.nc3 == pytest.approx(np.linalg.norm(means / np.linalg.norm(means) - text / np.linalg.norm(text)))
    assert result.nc4 == pytest.approx(2 / 3, rel=1e-12)
    unused = np.concatenate([corners[:1], np.ones((1, 6)), corners[1:]])  # a class without images
    assert neural_collapse(x, np.array([0, 2, 3])[labels], unused).nc4 == 0


def test_unusable_classes():
    x = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(InputError, match="each of the 6 rows has a label of its own; expected a class with at least"):
        neural_collapse(x, range(6))
    with pytest.raises(InputError, match="the means of the 2 classes are all equal"):
        neural_collapse(np.concatenate([x, x]), [0] * 6 + [1] * 6)
    with pytest.raises(InputError, match="the texts of the 2 classes are all equal, so NC3 is undefined"):
        neural_collapse(x, [0, 1] * 3, np.ones((2, 3)))
    with pytest.raises(InputError, match=r"labels\[1\] = 2; expected a whole number from 0 to 1, an index of the rows"):
        neural_collapse(x, [0, 2, 1, 0, 1, 1], x[:2])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("width", [0.01, 0.1])
def test_noise_around_a_simplex(seed, width):
    """Σ_B has variance 1/C along C − 1 directions, each of which has width² within."""
    x, labels, _ = collapsed(4, 10, 2000, width, seed)
    assert neural_collapse(x, labels).nc1 == pytest.approx(3 * width**2, rel=0.05)


def test_class_means_of_known_norms_and_angles():
    """Three means on two axes: 90 degrees apart seen from the origin, not from their center."""
    means = np.array([[2.0, 0], [-1, 1], [-1, -1]])  # they sum to zero
    x = np.repeat(means, 3, axis=0) + np.tile([[0.1, 0], [-0.1, 0], [0, 0]], (3, 1))
    result = neural_collapse(x, np.repeat([0, 1, 2], 3))
    lengths = np.array([2, 2**0.5, 2**0.5])
    assert result.nc2_norm == pytest.approx(lengths.std() / lengths.mean(), rel=1e-12)
    cosines = np.array([-2 / 2 / 2**0.5, -2 / 2 / 2**0.5, 0])
    assert result.nc2_angle == pytest.approx(np.abs(cosines + 1 / 2).mean(), rel=1e-12)
    # Σ_W has 0.02/3 along the first axis, where Σ_B has 6/3
    assert result.nc1 == pytest.approx(0.02 / 3 / 2 / 3, rel=1e-12)
    assert result.nc3 is None and result.nc4 is None
