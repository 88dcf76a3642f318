"""`BestScores`: the same lists as from all scores at once."""

import numpy as np
import pytest
import torch

from clip_geometry.search.best_scores import BestScores


@pytest.mark.parametrize("size", [1, 3, 40, 200])
def test_blocks_give_the_lists_of_all_scores(size):
    scores = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 200)).astype(np.float32))
    items = torch.randperm(1000, generator=torch.Generator().manual_seed(0))[:200]
    best = BestScores(7, 5)
    for start in range(0, 200, size):
        best.add(scores[:, start : start + size], items[start : start + size])
    expected, order = scores.sort(dim=1, descending=True)
    assert torch.equal(best.scores, expected[:, :5]) and torch.equal(best.items, items[order[:, :5]])


def test_fewer_items_than_places_leave_minus_infinity():
    best = BestScores(1, 3)
    best.add(torch.tensor([[0.2, 0.5]]), torch.tensor([8, 9]))
    assert best.scores.tolist() == [[0.5, pytest.approx(0.2), -torch.inf]] and best.items[0, :2].tolist() == [9, 8]
