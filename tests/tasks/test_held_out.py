import numpy as np

from clip_geometry.tasks.held_out import held_out

CHAIN = [("a", "b"), ("b", "c"), ("d",), ("c", "e"), ("f", "g"), ("g",)]  # groups {0, 1, 3}, {2}, {4, 5}


def test_examples_that_share_an_item_through_others_stay_together():
    for seed in range(20):
        held, smallest = held_out(CHAIN, 0.5, seed)
        assert smallest == 1 and 0 < held.sum() <= 3
        assert held[0] == held[1] == held[3] and held[4] == held[5]


def test_a_share_smaller_than_any_group_holds_nothing():
    held, smallest = held_out([("a", "b"), ("b", "c"), ("d", "e"), ("e",)], 0.3, 0)
    assert smallest == 2 and not held.any()


def test_of_independent_examples_it_is_the_share_drawn_by_the_seed():
    items = [(k,) for k in range(100)]
    first, again, other = (held_out(items, 0.2, seed)[0] for seed in (0, 0, 1))
    assert first.sum() == 20 and (first == again).all() and (first != other).any()
    assert isinstance(first, np.ndarray)
