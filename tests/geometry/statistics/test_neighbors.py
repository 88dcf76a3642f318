"""A list of neighbors that was found for one measure is the beginning of none other than its own rows' list."""

import pytest
import torch

from clip_geometry.geometry.distances import nearest
from clip_geometry.geometry.statistics import Neighbors


@pytest.mark.parametrize("order", [(30, 5, 12), (3, 30, 12), (12, 1)])
def test_shorter_lists_are_the_beginning_of_longer_ones_with_ties_in_their_order(order, monkeypatch):
    x = torch.randint(3, (60, 3), generator=torch.Generator().manual_seed(0)).double()  # many copies and ties
    neighbors, searched, search = Neighbors(x), [], nearest.nearest
    monkeypatch.setattr(nearest, "nearest", lambda rows, k: searched.append(k) or search(rows, k))
    for k in order:
        distances, indices = neighbors.nearest(k)
        expected = search(x, k)
        assert torch.equal(distances, expected[0]) and torch.equal(indices, expected[1])
    assert searched == {(30, 5, 12): [30], (3, 30, 12): [10, 30], (12, 1): [12]}[order]


def test_rows_of_unit_length_are_their_own_directions():
    x = torch.nn.functional.normalize(torch.randn(20, 4, dtype=torch.float64), dim=1)
    assert (unit := Neighbors(x)).unit is unit
    assert Neighbors(2 * x).unit.rows is not x and Neighbors(x.float()).unit.rows.dtype == torch.float64
