"""TokenRows: MaxSim equals a direct computation, padding does not matter, and tokens are pooled by Ward's clusters."""

import numpy as np
import pytest
import torch
from sklearn.cluster import AgglomerativeClustering

import clip_geometry as cg
from clip_geometry import tokens as module
from clip_geometry.search import TokenRows


def padded(seed, n, t=9, d=6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, t, d)), rng.integers(1, t + 1, size=n)


@pytest.mark.parametrize("block", [2**25, 50])
@pytest.mark.parametrize("seed", range(3))
def test_max_sim_equals_a_direct_computation(seed, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    (queries, q_lengths), (items, lengths) = padded(seed, 7), padded(seed + 10, 11)
    direct = [
        [sum(max(a @ b for b in x[:m]) for a in q[:k]) for x, m in zip(items, lengths, strict=True)]
        for q, k in zip(queries, q_lengths, strict=True)
    ]
    scores = TokenRows(queries, q_lengths).max_sim(TokenRows(items, lengths))
    assert scores.dtype == np.float64 and np.abs(scores - direct).max() < 1e-12
    single = TokenRows(queries.astype(np.float32), q_lengths).max_sim(TokenRows(items.astype(np.float32), lengths))
    assert single.dtype == np.float32 and np.abs(single - direct).max() < 1e-4


def test_padding_and_the_order_of_tokens_do_not_matter():
    (queries, q_lengths), (items, lengths) = padded(0, 5), padded(1, 8)
    scores = TokenRows(queries, q_lengths).max_sim(TokenRows(items, lengths))
    rng = np.random.default_rng(2)
    for array, counts in ((queries, q_lengths), (items, lengths)):
        for row, count in zip(array, counts, strict=True):
            row[:count] = rng.permutation(row[:count])
            row[count:] = np.nan
    assert np.allclose(TokenRows(queries, q_lengths).max_sim(TokenRows(items, lengths)), scores, rtol=0, atol=1e-12)


def test_one_token_per_item_is_an_inner_product():
    x, y = np.random.default_rng(0).normal(size=(2, 20, 6))
    assert np.array_equal(TokenRows(x).max_sim(TokenRows(y[:, None])), (torch.from_numpy(x) @ torch.from_numpy(y).T))


@pytest.mark.parametrize("factor", [2, 4])
def test_pooled_tokens_are_the_directions_of_the_means_of_wards_clusters(factor):
    array, lengths = padded(3, 20, t=14)
    tokens = TokenRows(array, lengths)
    pooled = tokens.pooled(factor)
    assert np.array_equal(pooled.lengths, np.maximum(lengths // factor, 1))
    for k in range(20):
        unit = array[k, : lengths[k]] / np.linalg.norm(array[k, : lengths[k]], axis=1, keepdims=True)
        count = max(lengths[k] // factor, 1)
        labels = AgglomerativeClustering(count).fit_predict(unit) if len(unit) > 1 else np.zeros(1, int)
        means = np.stack([unit[labels == label].mean(0) for label in range(count)])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        ours = pooled[k].rows
        assert np.allclose(ours[np.argsort(ours[:, 0])], means[np.argsort(means[:, 0])], atol=1e-12)
    assert tokens.pooled(1) is tokens


def test_items_are_selected_with_their_tokens():
    array, lengths = padded(4, 6)
    tokens = TokenRows(array, lengths)
    for items in (slice(1, 4), np.array([5, 0, 5]), np.arange(6) % 2 == 0):
        chosen, direct = tokens[items], TokenRows(array[items], lengths[items])
        assert np.array_equal(chosen.rows, direct.rows) and np.array_equal(chosen.lengths, direct.lengths)
    flat = TokenRows(tokens.rows, lengths)
    assert np.array_equal(flat.rows, tokens.rows) and len(flat) == 6 and flat.shape == (6, 6)
    half = TokenRows(torch.from_numpy(array).bfloat16(), lengths)
    assert half.dtype == np.float32 and np.allclose(half.rows, tokens.rows, atol=0.03)


@pytest.mark.parametrize("lengths", [[3, 0], [3, 6], [3], [3, 2, 1], [1.0, 2.0], [[3, 2]], "ab", [-1, 2]])
def test_wrong_lengths_are_a_sentence(lengths):
    with pytest.raises(
        cg.InputError, match=r"^lengths are .*; expected a whole number from 1 to 5 for each of 2 items$"
    ):
        TokenRows(np.ones((2, 5, 3)), lengths)


def test_other_wrong_arguments_are_sentences():
    tokens = TokenRows(np.ones((2, 5, 3)))
    for call, sentence in (
        (lambda: TokenRows(np.ones((5, 3)), [2, 2]), "expected whole numbers from 1 whose sum is 5"),
        (lambda: TokenRows(np.ones(5)), r"expected floats of the shape \(n, tokens, d\)"),
        (lambda: TokenRows(np.ones((2, 5, 3), int)), "expected floats"),
        (lambda: TokenRows(np.ones((0, 5, 3))), "expected floats"),
        (lambda: TokenRows("image.npy"), "expected floats"),
        (lambda: tokens.max_sim(TokenRows(np.ones((2, 5, 4)))), "3 columns and the items 4"),
        (lambda: tokens.max_sim(np.ones((2, 3))), "expected TokenRows"),
        (lambda: tokens.pooled(0), "factor = 0"),
    ):
        with pytest.raises(cg.InputError, match=sentence):
            call()


@pytest.mark.parametrize("verb", ["measure", "diagnose", "match", "gate", "explore"])
def test_other_verbs_take_one_vector_per_item(verb):
    tokens = TokenRows(np.random.default_rng(0).normal(size=(80, 3, 4)))
    with pytest.raises(cg.InputError, match="several vectors per item are given, which only compress takes"):
        getattr(cg, verb)(tokens, tokens)
    with pytest.raises(cg.InputError, match="only compress takes"):
        cg.compare({"image": tokens}, {"image": tokens})
