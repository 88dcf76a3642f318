import numpy as np
import pytest
import torch

from clip_geometry.evaluate.zero_shot import ensemble, zero_shot
from clip_geometry.geometry import measures
from clip_geometry.registry import InputError
from support import oracles_evaluators as oracles

LOGITS = ("cosine", "dot", "neg_distance")


def task(n=300, d=6, k=9, seed=0):
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(k, d)) + 1
    labels = rng.integers(k - 1, size=n)  # the last class has no image
    return text[labels] + rng.normal(size=(n, d)), labels, text


@pytest.mark.parametrize(("logits", "k"), [("cosine", 2), ("dot", 5), ("neg_distance", 9), ("cosine", 6)])
def test_agrees_with_scikit_learn(logits, k):
    image, labels, text = task(k=k)
    if k == 2:
        labels = np.arange(300) % 2
        expected = {"top_1": (oracles.logits(image, text, logits).argmax(1) == labels).mean()}
    else:
        expected = oracles.zero_shot(image, labels, text, logits)
    result = zero_shot(image, labels, text, logits=logits)
    assert {name: result[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    assert ("top_5" in result) == (k > 5)


def test_a_number_that_few_classes_do_not_have_is_an_error():
    with pytest.raises(InputError, match=r"^zero_shot\.top_5 does not exist for sets as small as these"):
        measures["zero_shot.top_5"](*task(k=4))


@pytest.mark.parametrize("logits", LOGITS)
def test_among_equal_classes_the_lowest_index_wins(logits):
    """Every class text is equal: class 0 is taken for all, and the classes 0 to 4 are the top five."""
    rng = np.random.default_rng(0)
    text = np.repeat(rng.normal(size=(1, 7)), 10, axis=0)
    result = zero_shot(rng.normal(size=(100, 7)), np.arange(100) % 10, text, logits=logits)
    assert (result["top_1"], result["top_5"], result["mean_per_class"]) == (0.1, 0.5, 0.1)
    pairs = np.repeat(rng.normal(size=(5, 7)), 2, axis=0)  # classes 0 and 1 equal, 2 and 3, ...
    labels = np.arange(200) % 10
    result = zero_shot(pairs[labels] + 0.01 * rng.normal(size=(200, 7)), labels, pairs, logits="neg_distance")
    assert result["top_1"] == 0.5


@pytest.mark.parametrize("logits", LOGITS)
def test_classes_that_nearly_coincide_are_told_apart(logits):
    """Classes 1e-9 apart about a common mean of length 100: products of the rows as given could not tell them."""
    rng = np.random.default_rng(0)
    offset, labels = 100 * oracles.unit(rng.normal(size=(1, 5))), rng.integers(4, size=50)
    moves = rng.normal(size=(4, 5))
    text = offset + 1e-9 * (moves - (moves @ offset.T) * offset / 1e4)
    image = text[labels] if logits == "neg_distance" else (text - text.mean(0))[labels] * 1e9 + 0.1 * offset
    exact = (text - text.mean(0)) * 1e9
    if logits == "neg_distance":
        assert zero_shot(image, labels, text, logits=logits)["top_1"] == 1
    else:
        expected = ((image @ exact.T).argmax(1) == labels).mean()
        assert zero_shot(image, labels, text, logits=logits)["top_1"] == pytest.approx(expected)


def test_many_rows_go_in_blocks():
    image, labels, text = task(n=9000)
    for logits in LOGITS:
        assert zero_shot(image, labels, text, logits=logits) == pytest.approx(
            oracles.zero_shot(image, labels, text, logits), abs=1e-12
        )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"logits": "euclidean"}, "logits 'euclidean' is unknown; known are 'cosine', 'dot', 'neg_distance'"),
        ({"labels": [0.0, 1.0]}, r"labels\[0\] = 0.0; expected a whole number from 0 to 2"),
        (
            {"labels": [0, 3]},
            r"labels\[1\] = 3; expected a whole number from 0 to 2, an index of the rows of class_text",
        ),
        ({"labels": [0, 1, 2]}, "3 labels for 2 rows; expected one label per row of image"),
        ({"class_text": np.ones((3, 5))}, "image has dimension 4 and class_text has 5; expected the same dimension"),
        ({"class_text": np.ones((1, 4))}, "class_text has 1 row; expected at least 2"),
        ({"class_text": np.zeros((3, 4))}, "class_text has a zero row"),
        ({"image": np.zeros((2, 4))}, "image has a zero row"),
    ],
)
def test_errors(change, sentence):
    given = {"image": np.ones((2, 4)), "labels": [0, 1], "class_text": np.eye(4)[:3] + 1} | change
    with pytest.raises(InputError, match=sentence):
        zero_shot(**given)


@pytest.mark.parametrize("kind", [torch.float64, torch.float16])
def test_ensemble(kind):
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(40, 5)) + 1).to(kind)
    classes = rng.permutation(np.arange(40) % 7)
    result = ensemble(rows, classes)
    assert np.abs(result.numpy() - oracles.ensemble(rows.double().numpy(), classes)).max() < 1e-14
    assert np.allclose(result.norm(dim=1), 1, atol=1e-15)


@pytest.mark.parametrize(
    ("rows", "classes", "sentence"),
    [
        (np.ones((3, 3)), [0, 2, 2], "class 1 of 0 to 2 has no prompt; expected at least one prompt of each class"),
        (np.ones((2, 3)), [0], "1 classes for 2 rows; expected one label per row of prompts"),
        (
            np.ones((2, 3)),
            [0, 2],
            r"classes\[1\] = 2; expected a whole number from 0 to 1, an index of the classes, at most",
        ),
        (np.zeros((2, 3)), [0, 1], "rows has a zero row"),
        (np.array([[1.0, 0], [-1.0, 0], [0, 1.0]]), [0, 0, 1], r"the matrix of prompt means has a zero row \(row 0\)"),
    ],
)
def test_ensemble_errors(rows, classes, sentence):
    with pytest.raises(InputError, match=sentence):
        ensemble(rows, classes)


def test_logits_agree_on_unit_rows_and_differ_on_others():
    image, labels, text = task()
    top = {logits: zero_shot(image, labels, text, logits=logits)["top_1"] for logits in LOGITS}
    assert len(set(top.values())) == 3
    image, text = oracles.unit(image), oracles.unit(text)
    top = {logits: zero_shot(image, labels, text, logits=logits)["top_1"] for logits in LOGITS}
    assert len(set(top.values())) == 1
