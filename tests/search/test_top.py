"""The best items of each query against Python's sort."""

import numpy as np
import pytest
import torch

from clip_geometry.search.two_sided import in_order, top


def loop(scores, grades, itself, k):
    found = []
    for row, graded, own in zip(scores, grades, itself, strict=True):
        items = sorted((-row[j], graded[j]) for j in range(len(row)) if j != own)[:k]
        items += [(np.inf, 0.0)] * (k - len(items))
        found.append([(-score, grade) for score, grade in items])
    return np.array(found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("k", [1, 4, 30])
def test_ties_go_to_the_lowest_grade(seed, levels, k):
    """With two levels most of 25 items are tied with the k-th; with k = 30 there are too few."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.integers(levels, size=(40, 25)) / levels)
    grades = torch.from_numpy(rng.integers(4, size=(40, 25)).astype(float))
    itself = torch.from_numpy(rng.integers(-1, 25, size=40))
    widths = []

    def choose(rows, width):
        widths.append(width)
        return scores[rows].topk(width, dim=1)

    found = top(choose, lambda rows, columns: grades[rows].gather(1, columns), itself, 25, k)
    expected = loop(scores.numpy(), grades.numpy(), itself.numpy(), k)
    np.testing.assert_array_equal(torch.stack(found, -1).numpy(), expected)
    assert widths[0] == min(k + 2, 25) and (levels > 2 or k == 30 or max(widths) > 20)


def test_a_chain_of_near_scores_is_one_tie():
    scores = torch.tensor([[0.3, 0.9, 1.0, 0.81, 0.5]], dtype=torch.float64)
    grades = torch.tensor([[1.0, 2.0, 3.0, 1.0, 0.0]])
    assert in_order(scores, grades, 0.101).tolist() == [[3, 1, 2, 4, 0]]
    assert in_order(scores, grades, 0.095).tolist() == [[2, 3, 1, 4, 0]]
    assert in_order(scores, grades).tolist() == [[2, 1, 3, 4, 0]]
