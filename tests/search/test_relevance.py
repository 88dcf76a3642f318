"""Relevance by labels and pairs against dense matrices."""

import numpy as np
import pytest
import torch

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
    found = Relevance.of_labels(**labels)
    agrees(found, {(a, b): x[:, None] == y[None] for a, x in labels.items() for b, y in labels.items()})


@pytest.mark.parametrize("seed", range(3))
def test_pairs(seed):
    rng = np.random.default_rng(seed)
    pairs = np.unique(np.stack([rng.integers(7, size=14), rng.integers(11, size=14)]), axis=1)
    across = np.zeros((8, 12))  # image 7 and text 11 have no pair
    across[pairs[0], pairs[1]] = 1
    expected = {("image", "text"): across, ("text", "image"): across.T}
    expected |= {("image", "image"): np.zeros((8, 8)), ("text", "text"): np.zeros((12, 12))}
    for given in (pairs, pairs.tolist(), torch.from_numpy(pairs), np.hstack([pairs, pairs])):
        agrees(Relevance.of_pairs(given, image=8, text=12), expected)


def test_pairs_of_three_modalities():
    pairs = {("image", "text"): [[0, 1], [1, 0]], ("text", "audio"): [[1], [2]]}
    found = Relevance.of_pairs(pairs, image=2, text=2, audio=3)
    assert found.dense("image", "text").tolist() == [[0, 1], [1, 0]] == found.dense("text", "image").T.tolist()
    assert found.dense("audio", "text").tolist() == [[0, 0], [0, 0], [0, 1]]
    assert not found.dense("image", "audio").any() and not found.dense("text", "text").any()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Relevance.of_labels(image=[0, None], text=[1]), r"labels of image lack a value in row 1"),
        (lambda: Relevance.of_pairs([[0], [0]], image=1), "pairs have 2 rows, of image items; expected 2 rows"),
        (lambda: Relevance.of_pairs([[0]], image=1, text=1), "pairs have 1 rows, of image, text items"),
        (lambda: Relevance.of_pairs({("image", "txt"): [[0], [0]]}, image=1, text=1), "of image, txt items; expected"),
        (lambda: Relevance.of_pairs([[0], [5]], image=1, text=3), "text item 5 does not exist; expected .* 0 to 2"),
        (lambda: Relevance.of_pairs([[-1], [0]], image=1, text=3), "image item -1 does not exist"),
        (lambda: Relevance.of_pairs([[0.5], [0]], image=1, text=3), "numbers of image items are .*; expected a list"),
        (lambda: Relevance.of_pairs([[0, 1], [0]], image=2, text=3), "pairs have rows of 2 and 1 numbers"),
        (lambda: Relevance.of_pairs([[0], [0]], image=0, text=3), "image = 0; expected a whole number"),
    ],
)
def test_errors(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
