import numpy as np
import pytest
import torch

import clip_geometry as cg
from clip_geometry.evaluate.retrieval import retrieval
from clip_geometry.geometry import measures
from clip_geometry.geometry.distances import nearest as neighbors
from clip_geometry.registry import InputError
from support import oracles_evaluators as oracles
from support import oracles_two_sided

INDICES = ("cross", "mixed")


def pairs(n=60, d=6, seed=0, gap=0.6):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x + gap, x + 0.8 * rng.normal(size=(n, d)) - gap


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize(("gap", "seed"), [(0.0, 0), (0.6, 1)])
def test_agrees_with_the_loop(index, gap, seed):
    image, text = pairs(gap=gap, seed=seed)
    result = retrieval(image, text, k=(1, 3, 10), index=index)
    assert result == pytest.approx(oracles.retrieval(image, text, (1, 3, 10), index), abs=1e-12)
    assert len(result) == (8 if index == "cross" else 14)
    assert 0 < result["image_to_text.r_at_1"] < result["image_to_text.r_at_10"] < 1 or gap


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("digits", [0, 1, 16])  # few digits make ties
def test_recalls_from_the_nearest_rows_are_those_from_all_products(index, digits):
    image, text = (rows.round(digits) + 0.1 for rows in pairs())
    captions = np.concatenate([text, text[::-1] + 0.01])
    both = np.arange(60), np.arange(60)[::-1]
    for sets in ((image, text), (image, captions, (np.concatenate(both), np.arange(120)))):
        with_median = retrieval(*sets, index=index)
        recalls = retrieval(*sets, index=index, median_rank=False)
        assert recalls == {name: value for name, value in with_median.items() if "median_rank" not in name}


@pytest.mark.parametrize("index", INDICES)
def test_rows_that_coincide_find_nothing(index):
    """Whatever the order of the rows: ties count against the query."""
    image = np.random.default_rng(0).normal(size=(1, 7)).repeat(20, axis=0)
    result = retrieval(image, image, index=index)
    last = 20 if index == "cross" else 39
    assert result["image_to_text.median_rank"] == result["text_to_image.median_rank"] == last
    assert all(value == 0 for name, value in result.items() if ".r_at_" in name)
    assert all(value == 1 for name, value in result.items() if "modality" in name)


@pytest.mark.parametrize("index", INDICES)
def test_copies_cost_the_first_places(index):
    """Each caption stands twice, so that none can be first among the texts; the order of the rows does not matter."""
    image, text = pairs(n=30)
    image, text = (
        np.repeat(image, 2, axis=0) + 0.1 * np.random.default_rng(1).normal(size=(60, 6)),
        np.repeat(text, 2, 0),
    )
    result = retrieval(image, text, index=index)
    assert result["image_to_text.r_at_1"] == 0
    assert index == "mixed" or result["image_to_text.r_at_5"] > 0.3
    assert result == pytest.approx(oracles.retrieval(image, text, (1, 5, 10), index), abs=1e-12)
    order = np.random.default_rng(0).permutation(60)
    assert retrieval(image[order], text[order], index=index) == result
    scaled = text * np.where(np.arange(60) % 2, 3, 0.7)[:, None]  # copies of the direction, rounded otherwise
    assert retrieval(image, scaled, index=index) == result


@pytest.mark.parametrize("spread", [1e-4, 1e-8, 1e-11])
def test_texts_that_nearly_coincide_keep_their_order(spread):
    """The pair leads by spread² only, or by spread × the size of the image: products in float64 lose that."""
    rng = np.random.default_rng(0)
    axis = np.zeros(8)
    axis[-1] = 1
    moves = np.linalg.qr(rng.normal(size=(7, 7)))[0]
    text = axis + spread * np.hstack([moves, np.zeros((7, 1))])  # of equal length, so that cosines order as products
    image = np.hstack([moves + 0.2 * rng.normal(size=(7, 7)), np.ones((7, 1))])
    expected = (np.argsort(-image[:, :7] @ moves.T, axis=1)[:, 0] == np.arange(7)).mean()
    result = retrieval(image, text, k=(1, 3))
    assert result["image_to_text.r_at_1"] == expected == 1
    reverse = (moves @ (oracles.unit(image)[:, :7]).T - np.diag(moves @ oracles.unit(image)[:, :7].T)[:, None]) * spread
    reverse += oracles.unit(image)[:, 7] - oracles.unit(image)[:, 7][:, None]
    np.fill_diagonal(reverse, -1)
    assert result["text_to_image.r_at_1"] == (reverse < 0).all(1).mean()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"index": "both"}, "index 'both' is unknown; known are 'cross', 'mixed'"),
        ({"k": (1, 60)}, "k = 60; expected a whole number from 1 to 59, below the 60 pairs"),
        ({"k": "5"}, "k = '5'; expected a whole number"),
        ({"k": ()}, r"k is empty; expected ranks such as \(1, 5, 10\)"),
        ({"text": np.ones((3, 6))}, "image has 60 rows and text has 3; expected pairs, row i with row i"),
        ({"text": np.zeros((60, 6))}, "text has a zero row"),
    ],
)
def test_errors(change, sentence):
    image, text = pairs()
    with pytest.raises(InputError, match=sentence):
        retrieval(**({"image": image, "text": text} | change))


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize(("spread", "seed"), [(1.0, 0), (1e-3, 1), (1e-6, 2), (1e-9, 0)])
def test_float32_products_change_no_count(index, spread, seed, monkeypatch):
    """However near the rows lie: what float32 leaves open is computed in float64, and ties count as they do there."""
    rng = np.random.default_rng(seed)
    near = rng.normal(size=(7, 64))[rng.integers(7, size=300)]
    image, text = (near + spread * rng.normal(size=(300, 64)) for _ in range(2))
    text[:20] = text[20:40]
    result = retrieval(image, text, index=index)
    monkeypatch.setattr(neighbors, "single_is_exact", lambda device: False)
    assert result == retrieval(image, text, index=index)
    if spread >= 1e-3:  # nearer rows are ties to the products of the oracle
        assert result == oracles.retrieval(image, text, (1, 5, 10), index)
    assert result["image_to_text.r_at_1"] < 1


def captioned(n=40, seed=0):
    """Images with one to five captions each, in any order, some captions of two images."""
    rng = np.random.default_rng(seed)
    image = rng.normal(size=(n, 6))
    i = np.concatenate([np.arange(n).repeat(rng.integers(1, 6, size=n)), [3, 5]])
    j = np.concatenate([rng.permutation(len(i) - 2), [0, 1]])
    text = np.empty((len(i) - 2, 6))
    text[j[:-2]] = image[i[:-2]] + 1.2 * rng.normal(size=(len(i) - 2, 6))
    order = rng.permutation(len(i))
    return image + 0.3, text - 0.3, np.stack((i, j))[:, order]


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_caption_counts(index, seed):
    image, text, pairs = captioned(seed=seed)
    result = retrieval(image, text, pairs, k=(1, 3, 10), index=index)
    assert result == pytest.approx(oracles.retrieval(image, text, (1, 3, 10), index, pairs), abs=1e-12)
    kinds = (pairs.tolist(), torch.from_numpy(pairs), pairs.astype(np.int32))
    assert all(retrieval(image, text, each, k=(1, 3, 10), index=index) == result for each in kinds)


@pytest.mark.parametrize(("k", "seed"), [(1, 0), (5, 1)])
def test_five_captions_an_image_are_those_of_clip_benchmark(seed, k):
    """Any of the five counts for an image; every caption is a query. Some images have six or four."""
    rng = np.random.default_rng(seed)
    of = rng.permutation(np.concatenate([np.arange(40).repeat(4), rng.integers(40, size=40)]))
    image = rng.normal(size=(40, 6))
    text = image[of] + 1.5 * rng.normal(size=(200, 6))
    result = retrieval(image, text, (of, np.arange(200)), k=k)
    for way, expected in oracles_two_sided.clip_benchmark(image, text, of, k).items():
        assert result[f"{way}.r_at_{k}"] == pytest.approx(expected, abs=1e-15)
        assert 0 < expected < 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([[0, 1]], "pairs are not two lists of equally many row numbers"),
        ([[0, 1], [0]], "pairs are not two lists of equally many row numbers"),
        ([["a"], ["b"]], "pairs are not two lists"),
        ([[*range(59), 0], list(range(60))], "pairs do not name each of the 60 image rows"),
        ([list(range(60)), list(range(1, 61))], "pairs do not name each of the 60 text rows"),
        (np.ones((2, 60)), "pairs are not two lists"),
    ],
)
def test_pairs_that_are_wrong(given, sentence):
    with pytest.raises(InputError, match=sentence):
        retrieval(*pairs(), given)


TIES = "{} of {} {} queries examined have other rows exactly as near as their pair, and ties count against the query"


@pytest.mark.parametrize("spread", [1.0, 1e-6])
@pytest.mark.parametrize("name", ["retrieval", "retrieval[mixed]"])
def test_ties_that_cost_recall_are_remarked_on(name, spread):
    """In a narrow cone, too, where cosines differ in their last digits only."""
    rng = np.random.default_rng(0)
    axis = rng.normal(size=8)
    x, noise = (axis + spread * rng.normal(size=(60, 8)) for _ in range(2))

    def remark(image, text, way="image_to_text", pairs=None, number="r_at_1"):
        return measures[f"{name}.{way}.{number}"].remark(image, text, *([] if pairs is None else [pairs]))

    assert remark(x, noise) is None and remark(x, x) is None
    same = np.repeat(x[:1], 60, axis=0)
    lengths = rng.uniform(1, 2, (60, 1))
    for number in ("r_at_1", "r_at_10", "median_rank"):
        assert remark(x, same * lengths, number=number) == TIES.format(60, 60, "image")
    assert remark(x, same, "text_to_image") is None  # images are told apart
    assert remark(same, same, "text_to_image") == TIES.format(60, 60, "text")
    some = x.copy()
    some[:12] = x[0]
    assert remark(x, some) == TIES.format(12, 60, "image")
    some[6:] = x[6:]
    assert remark(x, some) is None  # a tenth
    pairs = np.stack([np.arange(60).repeat(2), np.arange(120)])
    captions = np.repeat(x, 2, axis=0)  # of an image, as near as each other
    said = "60 images and 120 texts are queries, each correct if it finds any of its pairs"
    assert remark(x, captions, pairs=pairs) == remark(x, captions, "text_to_image", pairs) == said
    captions[:] = captions[0]
    assert remark(x, captions, pairs=pairs) == f"{said}; {TIES.format(60, 60, 'image')}"
    many = np.repeat(same, 5, axis=0)
    assert remark(many, many) == TIES.format(100, 100, "image")


def test_rows_that_all_tie_have_a_recall_of_zero_with_a_remark():
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], (80, 1))  # of one dimension, cosines are 1 and -1
    result = cg.measure(signs, signs * rng.uniform(1, 2, (80, 1)), measures="retrieval")
    for record in result:
        if "r_at" in record.measure:
            assert record.value == 0 and "ties count against the query" in record.note
