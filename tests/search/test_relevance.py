"""Relevance by labels and pairs against dense matrices."""

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry.search.relevance import Relevance


def agrees(relevance, expected):
    """expected: (query, item) → dense grades; no item is relevant to itself."""
    for (query, item), grades in expected.items():
        grades = np.array(grades, bool)
        if query == item:
            np.fill_diagonal(grades, False)
        np.testing.assert_array_equal(relevance.dense(query, item), grades, err_msg=f"{query} {item}")
        some = np.arange(len(grades))[::-2]
        np.testing.assert_array_equal(relevance.dense(query, item, some), grades[some], err_msg=f"{query} {item}")


@pytest.mark.parametrize("seed", range(3))
def test_labels_of_two_and_three_modalities(seed):
    rng = np.random.default_rng(seed)
    names = np.array(["ant", "bee", "cat", "dog"])
    labels = {"image": names[rng.integers(3, size=9)], "text": names[rng.integers(4, size=7)]}
    labels |= {"audio": names[rng.integers(1, 4, size=5)]} if seed else {}
    relevance = Relevance.of_labels(**labels)
    agrees(relevance, {(a, b): x[:, None] == y[None] for a, x in labels.items() for b, y in labels.items()})


def test_pairs_say_nothing_of_one_modality():
    """Image 3 and text 3 have no partner; two texts share image 0."""
    relevance = Relevance.of_labels(image=[0, 1, 2, 7], text=np.array([1, 0, 0, 8]), within=False)
    across = np.array([[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    none = np.zeros((4, 4))
    pairs = {("image", "text"): across, ("text", "image"): across.T, ("image", "image"): none, ("text", "text"): none}
    agrees(relevance, pairs)


def test_a_label_that_is_missing():
    with pytest.raises(InputError, match="labels of image lack a value in row 1"):
        Relevance.of_labels(image=[0, None], text=[1])
