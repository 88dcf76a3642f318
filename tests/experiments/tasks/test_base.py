"""Distinct items, examples that point to them, labels, and the cuts that `limit` makes."""

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry_experiments.tasks import resolve_task
from clip_geometry_experiments.tasks.base import TaskConfig, make_task, multi_label_task, single_label_task, spread

CLASSES = ("no", "yes")
PAIRS = [["a", "b", "a", "c"], ["b", "c", "a", "A"]]


def single(texts=PAIRS, labels=(0, 1, 1, 0), limit=None):
    return single_label_task(TaskConfig(name="t", limit=limit), texts, labels, CLASSES)


def test_examples_give_the_texts_back():
    """Items in the order in which they appear when examples are read one after another; case tells them apart."""
    task = single()
    assert task.items == ("a", "b", "c", "A")
    back = [[task.items[k] for k in column] for column in task.examples.T]
    assert back == PAIRS
    assert (task.width, len(task), task.multi_label) == (2, 4, False)
    assert (task.examples.dtype, task.labels.dtype) == (np.int64, np.int64)


def test_unlabeled_examples_are_dropped_and_counted_and_their_texts_with_them():
    task = single(labels=(0, None, -1, 1))
    assert (len(task), task.dropped) == (2, 2)
    assert task.items == ("a", "b", "c", "A")
    assert single([["x", "y", "z"]], (0, -1, 1)).items == ("x", "z")


@pytest.mark.parametrize(("n", "limit"), [(10, 3), (10, 10), (10, 11), (10, None), (7, 2)])
def test_limit_is_spread_over_sorted_sources(n, limit):
    kept = spread(list(range(n)), limit)
    assert len(kept) == min(n, limit or n) and kept[0] == 0 and kept == sorted(set(kept))
    assert len(kept) == n or max(np.diff(kept)) - min(np.diff(kept)) <= 1
    assert np.bincount(single([list("abcdefgh")], [0] * 4 + [1] * 4, limit=4).labels).tolist() == [2, 2]


def test_several_labels():
    labels = {"bank": ["group", "place"], "dog": ["animal"], "cat": ["animal"]}
    task = multi_label_task(TaskConfig(name="t"), labels, ("animal", "group", "place"))
    assert task.multi_label and task.width == 1 and task.labels.dtype == bool
    assert task.labels.astype(int).tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: single(labels=(None, None, -1, None)), "none of the 4 examples of t/all has a label; choose another"),
        (lambda: single(labels=(0, 1, 2, 0)), "t has the label 2; expected 0 to 1 for no, yes, and -1 or nothing for"),
        (lambda: single(labels=(0, 1, -2, 0)), "t has the label -2; expected 0 to 1"),
        (lambda: single(labels=(1, 1, 1, 1)), "all 4 examples of t have the same label; expected at least two"),
        (lambda: multi_label_task(TaskConfig(name="t"), {}, ()), "t has no words that have both a label and a vector"),
        (lambda: make_task("t", ["a"], np.zeros((1, 1), int), np.ones((1, 2), bool), "xy"), "all 1 examples of t have"),
        (lambda: single([[*"abc", "\ud800"]]), "t has the text '\\ud800', which is not Unicode; correct it"),
        (lambda: resolve_task("wnl"), "unknown task 'wnl'; did you mean 'wnli'"),
        (lambda: resolve_task({"split": "train"}), "a section with the key 'name'; clip-geometry list tasks names all"),
        (lambda: resolve_task(3), "expected the name of a task or a section with the key 'name'"),  # pyright: ignore
        (lambda: resolve_task({"name": "wnli", "limt": 3}), "task wnli: unknown key 'limt'; did you mean 'limit'"),
        (lambda: resolve_task({"name": "wnli", "limit": 1}), "task wnli: key 'limit' is 1: input should be greater"),
        (lambda: resolve_task({"name": "wnli", "split": "tran"}), "split: unknown split 'tran'; did you mean 'train'"),
        (lambda: resolve_task({"name": "polarity", "split": "dev"}), "split: unknown split 'dev'; known are all"),
    ],
)
def test_wrong_input_is_one_sentence(make, sentence):
    with pytest.raises(InputError) as error:
        make()
    assert sentence in str(error.value)
