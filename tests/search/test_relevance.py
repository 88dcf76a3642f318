"""Relevance by labels, pairs and tables against dense matrices made by loops."""

import numpy as np
import pytest
import torch

from clip_geometry.registry import InputError
from clip_geometry.search.relevance import Relevance


def dense(relevance, query, item):
    n, m = relevance.sizes[query], relevance.sizes[item]
    return relevance.tables[query, item].grades(torch.arange(n), torch.arange(m).expand(n, m)).numpy()


def agrees(relevance, expected, k=4):
    """expected: (query, item) → dense grades, the diagonal of own items ignored."""
    for (query, item), grades in expected.items():
        grades = np.array(grades, float)
        if query == item:
            np.fill_diagonal(grades, 0)
            found = dense(relevance, query, item)
            np.fill_diagonal(found, 0)  # what an item is to itself is never asked
        else:
            found = dense(relevance, query, item)
        np.testing.assert_array_equal(found, grades, err_msg=f"{query} {item}")
        np.testing.assert_array_equal(relevance.counts(query)[item], (grades > 0).sum(1))
    for query in relevance.sizes:
        every = np.hstack([np.array(expected[query, item], float) for item in relevance.sizes])
        own = list(relevance.sizes).index(query)
        offset = sum(list(relevance.sizes.values())[:own])
        every[np.arange(len(every)), offset + np.arange(len(every))] = 0
        best = -np.sort(-every, axis=1)[:, :k]
        np.testing.assert_array_equal(relevance.ideal(query, k), best)
        assert relevance.without(query) == (every == 0).all(1).sum()


@pytest.mark.parametrize("seed", range(3))
def test_labels_of_two_and_three_modalities(seed):
    rng = np.random.default_rng(seed)
    names = np.array(["ant", "bee", "cat", "dog"])
    labels = {"image": names[rng.integers(3, size=9)], "text": names[rng.integers(4, size=7)]}
    labels |= {"audio": names[rng.integers(1, 4, size=5)]} if seed else {}
    found = Relevance.of_labels(**labels)
    agrees(found, {(a, b): x[:, None] == y[None] for a, x in labels.items() for b, y in labels.items()})
    assert found.words == "equal labels"


@pytest.mark.parametrize("partners", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_pairs_and_their_partners(seed, partners):
    rng = np.random.default_rng(seed)
    pairs = np.unique(np.stack([rng.integers(7, size=14), rng.integers(11, size=14)]), axis=1)
    across = np.zeros((8, 12))  # image 7 and text 11 have no pair
    across[pairs[0], pairs[1]] = 1
    own = {"image": across @ across.T > 0, "text": across.T @ across > 0}
    expected = {("image", "text"): across, ("text", "image"): across.T}
    expected |= {(name, name): shared if partners else np.zeros(shared.shape) for name, shared in own.items()}
    for given in (pairs, pairs.tolist(), torch.from_numpy(pairs), np.hstack([pairs, pairs])):
        agrees(Relevance.of_pairs(given, partners=partners, image=8, text=12), expected)


@pytest.mark.parametrize("seed", range(3))
def test_graded_tables(seed):
    rng = np.random.default_rng(seed)
    n, m = 6, 9
    matrix = rng.integers(0, 3, size=(n + m, n + m)) * rng.uniform(0.5, 1.5, size=(n + m, n + m))
    parts = {"image": slice(n), "text": slice(n, None)}
    expected = {(a, b): matrix[parts[a], parts[b]] for a in parts for b in parts}
    tables = {couple: _columns(part) for couple, part in expected.items()}
    agrees(Relevance.of_grades(tables, image=n, text=m), expected)
    one_way = {("image", "text"): tables["image", "text"]}
    transposed = {
        ("image", "text"): expected["image", "text"],
        ("text", "image"): expected["image", "text"].T,
        ("image", "image"): np.zeros((n, n)),
        ("text", "text"): np.zeros((m, m)),
    }
    agrees(Relevance.of_grades(one_way, image=n, text=m), transposed)


def _columns(matrix):
    i, j = matrix.nonzero()
    return i, j, matrix[i, j]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Relevance.of_labels(image=[0, None], text=[1]), r"labels of image lack a value in row 1"),
        (lambda: Relevance.of_pairs([[0], [0]], image=1), "pairs of image were given; expected two modalities"),
        (lambda: Relevance.of_pairs([[0]], image=1, text=1), "pairs have 1 rows; expected 2, item numbers of image"),
        (lambda: Relevance.of_pairs([[0], [5]], image=1, text=3), "text item 5 does not exist; expected .* 0 to 2"),
        (lambda: Relevance.of_pairs([[-1], [0]], image=1, text=3), "image item -1 does not exist"),
        (lambda: Relevance.of_pairs([[0.5], [0]], image=1, text=3), "numbers of image items are .*; expected a list"),
        (lambda: Relevance.of_pairs([[0, 1], [0]], image=2, text=3), "pairs have columns of 2, 1 and 2 values"),
        (lambda: Relevance.of_pairs([[0], [0]], image=0, text=3), "image = 0; expected a whole number"),
        (lambda: Relevance.of_grades({("image", "txt"): 0}, image=1, text=1), "grades of .* were given; did you mean"),
        (lambda: Relevance.of_grades({"image": 0}, image=1, text=1), "expected the modalities of queries and of items"),
        (lambda: Relevance.of_grades({("image", "text"): [[0]]}, image=1, text=1), "have 1 columns; expected 3"),
        (lambda: Relevance.of_grades({("image", "text"): [[0], [0], [-1]]}, image=1, text=1), "finite numbers from 0"),
        (
            lambda: Relevance.of_grades({("image", "text"): [[0, 0], [0, 0], [1, 2]]}, image=1, text=1),
            "grades of text for image queries have two different grades for one query and item",
        ),
        (lambda: Relevance.of_grades("high", image=1, text=1), "grades are 'high'; expected tables"),
        (
            lambda: Relevance.of_grades({("image", "text"): [[0], [0], [np.nan]]}, image=1, text=1),
            "finite numbers from 0",
        ),
    ],
)
def test_errors(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
