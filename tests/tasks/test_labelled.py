"""Embeddings with labels as a task: images one by one, equal captions once."""

import numpy as np
import pytest

from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import InputError
from clip_geometry.tasks import labelled_task
from support.parameters import parameter_count

VECTORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def test_images_are_items_one_by_one():
    ids = np.array(["a", "b", "c", "d", "e"])
    rows = Embeddings(
        VECTORS,
        "image",
        item_id=ids,
        labels=np.array([3, 1, 3, 1, 1]),
        provenance={"class_names": ["w", "x", "y", "z"]},
    )
    task, first = labelled_task("cifar100", rows)
    assert (task.items, first.tolist(), task.examples[:, 0].tolist()) == (tuple(ids), [0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert (task.class_names, task.labels.tolist()) == (("x", "z"), [1, 0, 1, 0, 0])
    assert parameter_count(task, 3) == 5 * 3 + 2 * 3 + 2


def test_equal_captions_are_one_item():
    """Five captions of an image share its item_id and are five items; the same sentence twice is one."""
    text = np.array(["a dog", "a cat", "a dog", "Dog", "a cat"])
    rows = Embeddings(
        VECTORS, "text", item_id=np.array(list("xxyyz")), labels=np.arange(5) % 2, metadata={"text": text}
    )
    task, first = labelled_task("scenes", rows)
    assert (task.items, first.tolist()) == (("a dog", "a cat", "Dog"), [0, 1, 3])
    assert task.examples[:, 0].tolist() == [0, 1, 0, 2, 1]
    assert [text[row] for row in first] == list(task.items)


@pytest.mark.parametrize("ids", [None, np.array(list("aabbc"))])
def test_rows_without_a_name_of_their_own_have_their_number(ids):
    task, _ = labelled_task("t", Embeddings(VECTORS, "image", item_id=ids, labels=np.array(list("vuvuu"))))
    assert (task.items, task.class_names, task.labels.tolist()) == (tuple("01234"), ("u", "v"), [1, 0, 1, 0, 0])


def test_labels_that_are_no_places_name_themselves():
    rows = Embeddings(VECTORS, "image", labels=np.array([7, 0, 7, 0, 0]), provenance={"class_names": ["w", "x"]})
    assert labelled_task("t", rows)[0].class_names == ("0", "7")


def test_without_labels_it_is_one_sentence():
    with pytest.raises(InputError, match="the image rows of photos carry no labels; choose a data set with classes"):
        labelled_task("photos", Embeddings(VECTORS, "image"))
    with pytest.raises(InputError, match="all 5 examples of photos have the same label"):
        labelled_task("photos", Embeddings(VECTORS, "image", labels=np.ones(5)))
