"""SQuAD's exact match and F1 by hand, and the span head on a passage."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from clip_geometry.registry import InputError
from clip_geometry_experiments.rudman2024.finetune.measuring import best_span, exact_match, normalised, token_f1
from clip_geometry_experiments.rudman2024.finetune.model import tiny_bert
from clip_geometry_experiments.rudman2024.finetune.training import Examples, answer_tokens, encode, span_loss

PASSAGE = "The red circle lies in the upper left. A blue star, which is small, lies below the circle."
QUESTION = "What is small?"
ANSWER = "A blue star"


def asked(*pairs, answer=ANSWER):
    texts = tuple(pairs) or ((QUESTION, PASSAGE),)
    starts = np.array([passage.index(answer) for _, passage in texts])
    return Examples("squad", "span", texts, starts, (), "r", "train", tuple((answer,) for _ in texts))


def encoded(examples, **options):
    model, tokenizer = tiny_bert(examples.texts, width=8, layers=1, seed=0)
    return encode(examples, tokenizer, model, **{"name": "tiny", "max_length": 64, "overlap": 8, **options})


def test_an_answer_needs_a_token_for_none():
    model, tokenizer = tiny_bert(asked().texts, width=8, layers=1, seed=0)
    tokenizer.cls_token = None
    with pytest.raises(
        InputError, match=r"tiny has no \[CLS\]; it is needed for windows without .*; choose another model"
    ):
        encode(asked(), tokenizer, model, name="tiny", max_length=64, overlap=8)


# --- the two numbers, worked by hand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Red circle!", "red circle"),
        ("A theatre, an Anthem.", "theatre anthem"),  # articles are words, not beginnings of words
        ("U.S.A.", "usa"),
        ("the", ""),
        ("well-known", "wellknown"),
    ],
)
def test_answers_are_compared_without_case_punctuation_and_articles(text, expected):
    assert normalised(text) == expected


@pytest.mark.parametrize(
    ("predicted", "accepted", "exact", "f1"),
    [
        ("the Blue star.", ["blue star"], 1, 1),
        ("small blue star", ["blue star"], 0, 4 / 5),  # 2 of 3 words right, 2 of 2 found
        ("star", ["blue star", "the star"], 1, 1),  # the best of those that were accepted
        ("star star", ["star"], 0, 2 / 3),  # a word counts as often as it occurs: 1 of 2, 1 of 1
        ("circle", ["blue star"], 0, 0),
        ("", ["blue star"], 0, 0),
        ("upper left of a page", ["the upper left"], 0, 2 * (2 / 4) / (2 / 4 + 1)),
    ],
)
def test_exact_match_and_f1(predicted, accepted, exact, f1):
    assert exact_match(predicted, accepted) == exact
    assert token_f1(predicted, accepted) == pytest.approx(f1, abs=1e-15)


# --- from characters to tokens and back


@pytest.mark.parametrize("answer", ["A blue star", "small", "The", "the circle."])
def test_an_answer_is_the_tokens_that_hold_it_and_back(answer):
    inputs = encoded(asked(answer=answer))
    first, last = inputs.targets[0].tolist()
    places = inputs.places[0]
    assert PASSAGE[places[first, 0] : places[last, 1]] == answer
    assert len(inputs) == 1 and (places[:4] == -1).all()  # [CLS] and the question


def test_a_token_that_holds_more_than_the_end_of_an_answer_is_one_of_its_tokens():
    places = np.array([[-1, -1], [0, 4], [4, 9], [10, 15]])
    assert answer_tokens(places, 2, "xx") == (1, 1)
    assert answer_tokens(places, 5, "x" * 7) == (2, 3)
    assert answer_tokens(places, 13, "xxx") == (0, 0)  # it ends behind the window
    assert answer_tokens(np.full((3, 2), -1), 0, "x") == (0, 0)


def test_a_long_passage_is_read_in_windows_that_overlap():
    inputs = encoded(asked(), max_length=24, overlap=6)
    assert len(inputs) > 1 and set(inputs.example) == {0} and max(inputs.lengths) <= 24
    seen = [places[places[:, 0] >= 0] for places in inputs.places]
    for one, other in pairwise(seen):
        assert (one[-6:] == other[:6]).all()  # so many tokens are in both
    covered = {place for places in seen for place in map(tuple, places.tolist())}
    assert len(covered) == len(PASSAGE.replace(",", " ,").replace(".", " .").split())
    has = [
        PASSAGE[p[f, 0] : p[t, 1]] == ANSWER for p, (f, t) in zip(inputs.places, inputs.targets.tolist(), strict=True)
    ]
    lacks = [target == [0, 0] for target in inputs.targets.tolist()]
    assert any(has) and [not each for each in has] == lacks


def test_the_best_span_is_that_of_all_pairs_tried_one_by_one():
    rng = np.random.default_rng(0)
    places = np.array([[-1, -1], *([k, k + 1] for k in range(9)), [-1, -1]])
    for longest in (1, 3, 30):
        scores = rng.normal(size=(11, 2))
        tried = {(i, j): scores[i, 0] + scores[j, 1] for i in range(1, 10) for j in range(i, min(i + longest, 10))}
        (i, j), most = max(tried.items(), key=lambda item: item[1])
        assert best_span(scores, places, longest) == (pytest.approx(most), i - 1, j)
    assert best_span(scores[:1], places[:1], 3) is None


def test_the_span_loss_is_the_mean_cross_entropy_of_both_ends():
    rng = np.random.default_rng(0)
    scores, mask = torch.tensor(rng.normal(size=(2, 4, 2))), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    targets = torch.tensor([[1, 3], [0, 2]])
    terms = []
    for k, length in ((0, 4), (1, 3)):
        for end in (0, 1):
            values = scores[k, :length, end].tolist()
            terms.append(math.log(sum(map(math.exp, values))) - values[targets[k, end]])
    assert float(span_loss(scores, targets, mask)) == pytest.approx(sum(terms) / 4, abs=1e-12)


# --- what cannot be


def test_more_tokens_than_the_model_takes_are_one_sentence():
    with pytest.raises(InputError, match="max_length is 300, but tiny accepts at most 128 tokens; lower max_length"):
        encoded(asked(), max_length=300)
