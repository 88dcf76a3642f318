import numpy as np
import pytest
import torch
from calibrated_similarity import calibrate

from clip_geometry.geometry import measures, null_calibrated, permutation_test
from clip_geometry.registry import InputError


def related(n, d, noise, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, x[:, : d // 2] + noise * rng.normal(size=(n, d // 2))


@pytest.mark.parametrize("name", ["mutual_knn", "cka", "rsa", "cknna", "cycle_knn"])
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_agrees_with_the_authors_package(name, alpha):
    """Of the same permutations; its numbers are float32."""
    x, y = (torch.from_numpy(part) for part in related(40, 6, 1.5))
    found = null_calibrated(name, x, y, alpha=alpha, draws=39)
    generator = torch.Generator().manual_seed(0)
    score, p_value, threshold = calibrate(x, y, measures[name], K=39, alpha=alpha, generator=generator)
    assert float(found.calibrated) == pytest.approx(float(score), abs=1e-6)
    assert float(found.p_value) == pytest.approx(float(p_value), abs=1e-6)
    assert float(found.threshold) == pytest.approx(float(threshold), abs=1e-6)


def test_scales_of_chance_are_those_of_the_permutations():
    x, y = related(40, 6, 1.0)
    found, test = null_calibrated("cka", x, y, draws=99), permutation_test("cka", x, y, draws=99)
    assert found.z == pytest.approx((test.value - test.null_mean) / test.null_std, rel=1e-12)
    assert found.above_chance == pytest.approx((test.value - test.null_mean) / (1 - test.null_mean), rel=1e-12)
    assert found.value > found.threshold > found.null_mean


def test_unrelated_sets_exceed_the_threshold_as_seldom_as_stated():
    sets = [np.random.default_rng(seed).normal(size=(2, 25, 30)) for seed in range(80)]
    draws = [null_calibrated("cka", *pair, draws=19, alpha=0.25) for pair in sets]
    assert np.mean([each.calibrated > 0 for each in draws]) == pytest.approx(0.25, abs=0.15)
    assert abs(np.mean([each.above_chance for each in draws])) < 0.02


def test_full_agreement_is_one():
    x = np.random.default_rng(0).normal(size=(30, 5))
    found = null_calibrated("mutual_knn", x, 2 * x)
    assert (found.value, found.calibrated, found.above_chance) == (1, 1, 1)
    assert found.p_value == pytest.approx(1 / 201)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("isoscore", "isoscore is no measure of pairs"),
        ("silhouette", "silhouette is no measure of pairs"),
        ("alignment", "alignment has no greatest agreement"),
        ("information_imbalance", "information_imbalance has no greatest agreement"),
    ],
)
def test_other_measures_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        null_calibrated(name, np.ones((12, 3)), np.ones((12, 3)))


def test_without_a_scale_of_chance():
    x = np.random.default_rng(0).normal(size=(11, 5))  # all others are the ten nearest
    with pytest.raises(InputError, match="all 9 random pairings have the same cycle_knn"):
        null_calibrated("cycle_knn", x, x, draws=9)
    with pytest.raises(InputError, match="alpha = 1; expected a number between 0 and 1"):
        null_calibrated("cka", x, x, alpha=1)
