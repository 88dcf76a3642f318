"""Neighborhood repairs: the papers' formulas in loops, the authors' package, and a planted hub."""

import contextlib
import io

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry.search.repairs import Known, neighborhoods, repairs
from clip_geometry.search.repairs.neighborhoods import CSLS, NNN, InvertedSoftmax
from support.clouds import unit
from support.mixed_index import NAMES, rows

KINDS = [("image", "image"), ("image", "text"), ("text", "image"), ("text", "text")]
N = 30  # of the bank; items 0 to 9 are its rows 5 to 14, the others are new


@pytest.fixture
def bank():
    return rows(n=N, d=12)


@pytest.fixture
def items(bank):
    return {name: np.concatenate([x[5:15], rows(1, n=8, d=12)[name]]) for name, x in bank.items()}


@pytest.fixture
def queries():
    return rows(2, n=7, d=12)


def made(kind, **parameters):
    """A repair with other parameters than it is registered with."""
    repair = kind()
    for name, value in parameters.items():
        setattr(repair, name, value)
    return repair


def near(row, among, k, itself=None):
    """Mean cosine of a row to its k nearest, except the one that it is itself."""
    cosines = [float(unit(row[None])[0] @ other) for j, other in enumerate(unit(among)) if j != itself]
    return sum(sorted(cosines)[-k:]) / len(sorted(cosines)[-k:])


def place(query, item, j):
    """The number of item j in the bank of the query's modality, or None."""
    return j + 5 if query == item and j < 10 else None


@pytest.mark.parametrize("k", [1, 4, 100])
def test_csls(bank, items, queries, k):
    repair = made(CSLS, k=k).fit(Known(bank))
    for query, item in KINDS:
        q, x = queries[query], items[item]
        ours = repair.scores(query, q, item, x)
        for i in range(len(q)):
            for j in range(len(x)):
                r_x = near(x[j], bank[query], min(k, N - (query == item)), place(query, item, j))
                r_q = near(q[i], bank[item], min(k, N - (query == item)))
                assert ours[i, j] == pytest.approx(2 * unit(q)[i] @ unit(x)[j] - r_x - r_q, abs=1e-12)


@pytest.mark.parametrize(("k", "alpha"), [(1, 0.3), (7, 0.75), (128, 1.4)])
def test_nnn(bank, items, queries, k, alpha):
    repair = made(NNN, k=k, alpha=alpha).fit(Known(bank))
    for query, item in KINDS:
        q, x = queries[query], items[item]
        ours = repair.scores(query, q, item, x)
        r = [near(row, bank[query], min(k, N - (query == item)), place(query, item, j)) for j, row in enumerate(x)]
        np.testing.assert_allclose(ours, unit(q) @ unit(x).T - alpha * np.array(r), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("query", "item"), KINDS)
def test_nnn_is_that_of_its_authors(bank, queries, query, item):
    """Items that are in no bank, since the package knows of no item that is its own neighbor."""
    with contextlib.redirect_stdout(io.StringIO()):  # it prints that it found no FAISS
        nnn = pytest.importorskip("nnn", reason="nnn-retrieval, the authors' package, is not installed")
    q, x = queries[query], rows(1, n=8, d=12)[item]
    ranker = nnn.NNNRanker(nnn.NNNRetriever(12), unit(x), unit(bank[query]), alternate_ks=7, alternate_weight=0.6)
    scores, numbers = ranker.search(unit(q), 8)
    ours = made(NNN, k=7, alpha=0.6).fit(Known(bank)).scores(query, q, item, x)
    np.testing.assert_allclose(np.take_along_axis(ours, numbers, axis=1), scores, rtol=0, atol=1e-12)


def test_inverted_softmax(bank, items, queries):
    """exp(scores) are the probabilities of the paper; β is the logit scale of the model."""
    repair, b = InvertedSoftmax().fit(Known(bank, logit_scale=30.0)), 30.0
    for query, item in KINDS:
        q, x = unit(queries[query]), unit(items[item])
        ours = np.exp(repair.scores(query, queries[query], item, items[item]))
        for j in range(len(x)):
            others = [each for each, row in enumerate(bank[query]) if each != place(query, item, j)]
            total = sum(np.exp(b * unit(bank[query])[each] @ x[j]) for each in others)
            np.testing.assert_allclose(ours[:, j], np.exp(b * q @ x[j]) / total, rtol=1e-11)


def test_a_copy_of_an_item_is_its_neighbor(bank):
    """Of two equal bank rows, one is the item and the other one its neighbor, with cosine 1."""
    twice = {"image": np.concatenate([bank["image"], bank["image"][:1]]), "text": bank["text"]}
    bias = made(NNN, k=1, alpha=1.0).fit(Known(twice)).item_statistic("image", "image")(unit(twice["image"]))
    assert bias[[0, -1]] == pytest.approx(-1, abs=1e-12) and bias[1:-1].min() > -0.999


@pytest.mark.parametrize("name", ["csls", "inverted_softmax", "nnn"])
@pytest.mark.parametrize("names", [NAMES[:2], NAMES])
def test_blocks_change_nothing(name, names, monkeypatch):
    """Of 50 cosines rather than 4 million. Products of fewer rows may be rounded differently, by 1e-16 times β."""
    sets, items = rows(n=N, d=12, names=names), rows(1, n=18, d=12, names=names)
    repair = repairs[name].make().fit(Known(sets))
    whole = repair.mixed("text", items["text"], items, np.arange(18))
    monkeypatch.setattr(neighborhoods, "ENTRIES", 50)
    for item, table in repair.mixed("text", items["text"], items, np.arange(18)).items():
        np.testing.assert_allclose(table, whole[item], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["csls", "inverted_softmax", "nnn"])
def test_a_bank_of_one_row(name, bank):
    with pytest.raises(
        InputError, match=f"there is one text row; {name} needs a bank of at least 2 rows of each modality"
    ):
        repairs[name].make().fit(Known({"image": bank["image"], "text": bank["text"][:1]}))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_row_is_itself_in_any_precision_and_at_any_length(bank, dtype):
    copy = (3 * bank["image"]).astype(dtype)
    repair = made(NNN, k=1, alpha=1.0).fit(Known(bank))
    expected = [near(row, bank["image"], 1, itself=j) for j, row in enumerate(bank["image"])]
    np.testing.assert_allclose(-repair.item_statistic("image", "image")(unit(copy.astype(float))), expected, atol=1e-3)


@pytest.mark.parametrize("name", ["csls", "inverted_softmax", "nnn"])
def test_a_hub_leaves_the_first_places(name):
    """One text is the mean of all images and the first result of two thirds of image queries; 3 to 18 % remain."""
    sets, q = rows(n=60, d=40, gap=1.0), rows(1, n=60, d=40, gap=1.0)["image"]
    sets["text"][7] = 100 * unit(sets["image"]).mean(0)
    before, after = (
        repairs[each].make().fit(Known(sets)).scores("image", q, "text", sets["text"]).argmax(1)
        for each in ("none", name)
    )
    assert (before == 7).mean() > 0.6 and (after == 7).mean() < 0.25
