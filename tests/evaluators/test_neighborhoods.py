import numpy as np
import pytest
import torch

import clip_geometry as cg
from clip_geometry.registry import InputError
from support.clouds import rotation


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def overlap(before, after, k):
    """Of the k best of each row, equal ones in the order of the columns."""
    shares = []
    for i in range(len(before)):
        lists = [sorted((-row[j], j) for j in range(len(row)) if j != i)[:k] for row in (before[i], after[i])]
        shares.append(len(set.intersection(*({j for _, j in each} for each in lists))) / k)
    return np.array(shares)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 10, 39])
def test_rows_and_scores_agree_with_the_loop(seed, k):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 6)) + 0.5
    y = x - x.mean(0)
    before, after = unit(x) @ unit(x).T, unit(y) @ unit(y).T
    expected = overlap(before, after, k)
    np.testing.assert_array_equal(cg.preserved_neighbors(before, after, k=k), expected)
    assert cg.neighborhood_preservation(x, y, k=k) == pytest.approx(expected.mean(), abs=1e-15)
    assert cg.neighborhood_preservation(x, y, k=k) == cg.mutual_knn(x, y, k=k)
    assert k == 39 or 0 < expected.mean() < 1
    blocks = [(each[:17], each[17:]) for each in (before, after)]
    np.testing.assert_array_equal(cg.preserved_neighbors(*map(iter, blocks), k=k), expected)
    tensors = cg.preserved_neighbors(torch.from_numpy(before), torch.from_numpy(after), k=k)
    assert isinstance(tensors, torch.Tensor) and tensors.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_ties_go_by_the_order_of_the_items(seed):
    rng = np.random.default_rng(seed)
    before, after = rng.integers(0, 2 + seed, size=(2, 40, 40)) / 4
    found = cg.preserved_neighbors(before, after)
    np.testing.assert_array_equal(found, overlap(before, after, 10))
    np.testing.assert_array_equal(cg.preserved_neighbors(before, 3 * before - 1), np.ones(40))


def test_a_rotation_costs_nothing_and_noise_leaves_chance():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 8))
    assert cg.neighborhood_preservation(x, x @ rotation(8, rng)) == 1
    # sd of the mean of 300 hypergeometric shares of 10: about 0.0033, so within 5 sd
    assert cg.neighborhood_preservation(x, rng.normal(size=x.shape)) == pytest.approx(10 / 299, abs=0.017)


@pytest.mark.parametrize(
    ("before", "after", "k", "sentence"),
    [
        (np.eye(4), np.eye(5), 2, "scores before are of 4 items and after of 5; expected the same items"),
        (np.ones((3, 5)), np.eye(5), 2, "scores before are of 3 queries and 5 items; expected as many"),
        (np.ones((7, 5)), np.eye(5), 2, "scores before are of 7 queries and 5 items; expected as many"),
        (np.eye(4), np.eye(4) * np.nan, 2, "scores after are .*; expected a matrix of floats without NaN"),
        (np.eye(4, dtype=int), np.eye(4), 2, "scores before are .*; expected a matrix of floats"),
        (3, np.eye(4), 2, "scores before are 3; expected a matrix"),
        ([], np.eye(4), 2, "scores before are of 0 queries and 0 items"),
        (np.eye(4), np.eye(4), 4, "k = 4; expected a whole number from 1 to 3, below the 4 items"),
    ],
)
def test_errors(before, after, k, sentence):
    with pytest.raises(InputError, match=sentence):
        cg.preserved_neighbors(before, after, k=k)


def test_errors_of_rows_name_them():
    with pytest.raises(InputError, match="before has 20 rows and after has 19; expected pairs"):
        cg.neighborhood_preservation(np.eye(20), np.eye(20)[:19])
