"""`BestScores` and `best_of`: the same lists as from all scores at once."""

import pytest
import torch

from clip_geometry.geometry.distances.best_scores import GROUP, BestScores, best_of


@pytest.mark.parametrize("lowest", [False, True])
@pytest.mark.parametrize("size", [1, 3, 40, 200])
def test_blocks_give_the_lists_of_all_scores(size, lowest):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(7, 200, generator=generator)
    items = torch.randperm(1000, generator=generator)[:200]
    best = BestScores(7, 5, lowest=lowest)
    for start in range(0, 200, size):
        for queries in (slice(0, 4), slice(4, 7)):
            best.add(scores[queries, start : start + size], items[start : start + size], queries)
    expected, order = scores.sort(dim=1, descending=not lowest)
    found, found_items = best.in_order()
    assert torch.equal(found, expected[:, :5])
    assert torch.equal(found_items, items[order[:, :5]])


def test_equal_scores_are_in_the_order_of_the_items():
    best = BestScores(1, 4)
    best.add(torch.tensor([[0.5, 0.2, 0.5, 0.5]]), torch.tensor([9, 1, 3, 7]))
    assert best.in_order()[1].tolist() == [[3, 7, 9, 1]]


def test_fewer_items_than_places_leave_minus_infinity():
    best = BestScores(1, 3)
    best.add(torch.tensor([[0.2, 0.5]]), torch.tensor([8, 9]))
    scores, items = best.in_order()
    assert scores.tolist() == [[0.5, pytest.approx(0.2), -torch.inf]]
    assert items[0, :2].tolist() == [9, 8]


@pytest.mark.parametrize("lowest", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("levels", [1, 2])  # extremes of groups, and groups of extremes
def test_a_group_of_columns_hides_nothing(levels, transposed, lowest):
    """The best of all side by side in one group, and in the columns left over."""
    groups = 40 * GROUP ** (levels - 1)
    columns = GROUP * groups + 5
    values = torch.rand(3, columns, generator=torch.Generator().manual_seed(0))
    values[0, torch.arange(GROUP) * groups] += 1 - 2 * lowest
    values[1, -5:] += 1 - 2 * lowest
    if transposed:
        values = values.T.contiguous().T
    best, found = best_of(values, 10, lowest=lowest)
    expected = values.sort(1, descending=not lowest).values[:, :10]
    assert torch.equal(best.sort(1, descending=not lowest).values, expected)
    assert torch.equal(values.gather(1, found), best)
