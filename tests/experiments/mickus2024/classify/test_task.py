"""Examples point to items, and what is held out shares no item with what is trained."""

import numpy as np
import pytest
import torch

from clip_geometry.registry import InputError
from clip_geometry_experiments.mickus2024.classify.task import ClassificationTask, hold_out
from clip_geometry_experiments.mickus2024.classify.training import ClassificationCallback, LayerPlace
from support.problems import trainer

ITEMS = np.random.default_rng(0).normal(size=(6, 4))
PAIRS = np.array([[0, 1], [2, 1], [3, 4], [5, 5]])
LABELS = np.array([0, 1, 1, 0])


def chains(groups=30, d=5):
    """Groups of two examples that share an item, of two classes."""
    rng = np.random.default_rng(0)
    first = 3 * np.arange(groups)
    examples = np.concatenate([np.stack([first + k, first + k + 1], axis=1) for k in (0, 1)])
    return ClassificationTask.of(rng.normal(size=(3 * groups, d)), examples, np.repeat([0, 1], groups))


def test_pairs_lie_side_by_side():
    problem = ClassificationTask.of(ITEMS, PAIRS, LABELS, 3)
    assert (problem.outputs, problem.width, problem.multi_label) == (3, 8, False)
    expected = np.hstack([ITEMS[PAIRS[:, 0]], ITEMS[PAIRS[:, 1]]]).astype(np.float32)
    assert torch.equal(problem.inputs(problem.items), torch.from_numpy(expected))
    assert problem.classes.tolist() == LABELS.tolist()


def test_distinct_vectors_of_labels_are_classes():
    labels = np.array([[0, 1], [1, 1], [0, 1], [0, 0]])
    problem = ClassificationTask.of(ITEMS, PAIRS, labels.astype(bool))
    classes = problem.classes.tolist()
    assert problem.multi_label and problem.outputs == 2 and problem.targets.dtype == torch.float32
    assert classes[0] == classes[2] and len(set(classes)) == 3


def test_the_rows_that_were_given_are_not_trained():
    items = ITEMS.astype(np.float32)
    before = items.copy()
    problem = ClassificationTask.of(items, PAIRS, LABELS)
    trainer(problem, 3).run()
    assert np.array_equal(items, before) and torch.equal(problem.items, torch.from_numpy(before))


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
    with pytest.raises(InputError, match="none can be held out, the smallest group that shares items has 5"):
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


def test_the_classifier_alone_changes_what_unseen_examples_give():
    trained, unseen = hold_out(chains(), 0.25, 0)
    training = trainer(trained, 8, unseen=unseen, lr=0.01, classifier="two-layer", hidden=6)
    states = training.run(range(9), ClassificationCallback(("silhouette", "isoscore")))
    assert torch.equal(training.unseen.items, unseen.items)
    lengths = {tuple(place): len(values) for place, values in states.items() if place.examples == "held out"}
    assert lengths == {
        ("classify.loss", "held out", "output"): 9,
        ("classify.accuracy", "held out", "output"): 9,
        ("silhouette", "held out", "input"): 1,  # of rows that stay as they are
        ("isoscore", "held out", "input"): 1,
        ("silhouette", "held out", "hidden"): 9,
        ("isoscore", "held out", "hidden"): 9,
    }
    assert len(set(states[LayerPlace("silhouette", "held out", "hidden")])) > 1
