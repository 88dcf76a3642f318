"""Examples point to items, and what is held out shares no item with what is trained."""

import numpy as np
import pytest
import torch

from clip_geometry.registry import InputError
from clip_geometry_experiments.mickus2024.classify.task import ClassificationTask, hold_out

ITEMS = np.random.default_rng(0).normal(size=(6, 4))
PAIRS = np.array([[0, 1], [2, 1], [3, 4], [5, 5]])
LABELS = np.array([0, 1, 1, 0])


def chains(groups=30, d=5):
    """Groups of two examples that share an item, of two classes."""
    rng = np.random.default_rng(0)
    first = 3 * np.arange(groups)
    examples = np.concatenate([np.stack([first + k, first + k + 1], axis=1) for k in (0, 1)])
    return ClassificationTask.of(rng.normal(size=(3 * groups, d)), examples, np.repeat([0, 1], groups))


def test_one_class_is_no_problem():
    with pytest.raises(InputError, match="the 4 examples are of one class"):
        ClassificationTask.of(ITEMS, PAIRS, LABELS * 0)


# --- held out


@pytest.mark.parametrize("seed", range(5))
def test_held_out_examples_share_no_item_with_the_others(seed):
    problem = chains()
    trained, unseen = hold_out(problem, 0.25, seed)
    assert len(unseen.examples) == 14 and len(trained.examples) == 46  # whole groups of two, at most a quarter of 60
    rows = [{tuple(row.tolist()) for row in part.items} for part in (trained, unseen)]
    assert rows[0].isdisjoint(rows[1]) and len(rows[0]) + len(rows[1]) == len(problem.items)
    inputs = torch.cat([part.inputs(part.items) for part in (trained, unseen)])
    targets = torch.cat([trained.targets, unseen.targets])
    found = {(*row.tolist(), int(target)) for row, target in zip(inputs, targets, strict=True)}
    whole = zip(problem.inputs(problem.items), problem.targets, strict=True)
    assert found == {(*row.tolist(), int(target)) for row, target in whole}


def test_another_seed_holds_out_others_and_none_is_none():
    problem = chains()
    first, second = (hold_out(problem, 0.25, seed)[1].items for seed in (0, 1))
    assert not torch.equal(first, second)
    assert hold_out(problem, 0.0, 0) == (problem, None)


def test_examples_that_all_hang_together_cannot_be_held_out():
    chain = np.stack([np.arange(5), np.arange(1, 6)], axis=1)
    with pytest.raises(InputError, match="holds out none, because the smallest group that shares items has 5"):
        hold_out(ClassificationTask.of(ITEMS, chain, np.arange(5) % 2), 0.5, 0)


def test_both_parts_need_two_classes():
    """Of a class with one example either part lacks it, by chance the one or the other."""
    problem = ClassificationTask.of(ITEMS, np.arange(6)[:, None], np.array([0, 0, 0, 0, 0, 1]))
    said = set()
    for seed in range(20):
        with pytest.raises(InputError, match=r"the 3 .* examples are of one class") as error:
            hold_out(problem, 0.5, seed)
        said.add("held-out" in str(error.value))
    assert said == {True, False}
