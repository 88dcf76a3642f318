"""The numbers of a search against loops, and the errors of estimates against formulas."""

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.search.held_out import HeldOutSearch, SearchEstimate, SearchNumbers, search_index
from clip_geometry.search.mixed_index import Split
from support import oracles_two_sided
from support.clip_like import clip_like
from support.clouds import unit


@pytest.fixture
def labelled():
    rng = np.random.default_rng(5)
    centers = rng.normal(size=(4, 6))
    labels = {"image": rng.integers(4, size=30), "text": rng.integers(4, size=20)}
    rows = {name: centers[each] + rng.normal(size=(len(each), 6)) for name, each in labels.items()}
    sets = {name: cg.Embeddings(x + (name == "image"), name, labels=labels[name]) for name, x in rows.items()}
    return cg.search.MixedIndex.of(sets), sets


def by_loops(sets):
    """Every number of the search by cosine, one query at a time."""
    numbers = {"mrr": [], "r_at_1": [], "hit_at_10": [], "own_share": [], "cross_r_at_1": [], "precision": []}
    values_by_query = {name: {number: [] for number in numbers} for name in sets}
    for query, each in sets.items():
        for row in range(len(each)):
            items = []
            for item, other in sets.items():
                cosines = unit(other.vectors) @ unit(each.vectors)[row]
                for k, cosine in enumerate(cosines):
                    if (item, k) != (query, row):
                        items.append((cosine, item, other.labels[k] == each.labels[row]))
            items.sort(key=lambda entry: -entry[0])
            across = [relevant for _, item, relevant in items if item != query]
            if not any(across):
                continue
            rank = 1 + next(k for k, (_, item, relevant) in enumerate(items) if relevant and item != query)
            mine = values_by_query[query]
            mine["mrr"].append(1 / rank)
            mine["r_at_1"].append(rank == 1)
            mine["hit_at_10"].append(rank <= 10)
            mine["own_share"].append(np.mean([item == query for _, item, _ in items[:10]]))
            mine["cross_r_at_1"].append(across[0])
            mine["precision"].append(np.mean([relevant for *_, relevant in items[:10]]))
    return {
        f"{number}.{name}": np.mean(values) for name, mine in values_by_query.items() for number, values in mine.items()
    }


def test_numbers_are_those_of_loops(labelled):
    index, sets = labelled
    estimates = search_index(index)
    expected = by_loops(sets)
    assert {name: estimates[name].value for name in expected} == pytest.approx(expected, abs=1e-12)
    assert estimates["neighbors"].value == 1
    both = np.mean([expected["mrr.image"], expected["mrr.text"]])
    assert estimates["mrr"].value == pytest.approx(both, abs=1e-12)


@pytest.mark.parametrize("levels", [None, 2, 5])
@pytest.mark.parametrize("by", ["labels", "pairs"])
def test_numbers_of_the_top_ten_are_those_of_sorted_lists(by, levels):
    """Scores of a few levels, too, in which all of the top ten may be tied with all of the rest."""
    rng = np.random.default_rng(levels)
    labels = {"image": rng.integers(5, size=30), "text": rng.integers(6, size=30)}
    sets = {name: cg.Embeddings(rng.normal(size=(30, 4)), name, labels=each) for name, each in labels.items()}
    index = cg.search.MixedIndex.of(sets, by)
    scores = {(a, b): rng.normal(size=(30, 30)) for a in sets for b in sets}
    if levels:
        scores = {kind: rng.integers(levels, size=(30, 30)) / 4 for kind in scores}

    class Given(cg.search.Repair):
        def scores(self, query, q, item, x):
            return scores[query, item].copy()

    searched = HeldOutSearch(index, Split({}, index.all_rows, index.all_rows)).run(Given())
    relevance = index.relevance(index.all_rows)
    for query in sets:
        expected = oracles_two_sided.by_query(
            {item: scores[query, item] for item in sets},
            {item: relevance.dense(query, item).astype(float) for item in sets},
            query,
            10,
        )
        names = ["precision", "ndcg"] if not levels or by == "labels" else []  # of pairs, own results are last, too
        names += [] if levels else ["own_share"]
        names += ["own_precision"] if by == "labels" and not levels else []
        for name in names:
            np.testing.assert_allclose(searched.means(query, name), expected[name], atol=1e-12, err_msg=name)


def test_error_of_one_modality_is_that_of_a_mean(labelled):
    index, _ = labelled
    sums = SearchNumbers(index)
    values = np.random.default_rng(0).random(30)
    sums.add("image", np.arange(30), {"mrr": values}, {})
    estimate = sums.estimates()["mrr.image"]
    assert estimate.error == pytest.approx(values.std(ddof=1) / np.sqrt(30))


def test_rows_of_one_item_are_one_observation():
    index = cg.search.MixedIndex.of({name: cg.Embeddings(x, name) for name, x in clip_like(40).items()})
    values = np.random.default_rng(0).random(40)
    sums = SearchNumbers(index)
    for name in index.modalities:
        sums.add(name, np.arange(40), {"mrr": values}, {})
    estimates = sums.estimates()
    assert estimates["mrr"].error == pytest.approx(estimates["mrr.image"].error)  # not smaller by √2


def test_the_interval_is_of_items_and_splits():
    index = cg.search.MixedIndex.of({name: cg.Embeddings(x, name) for name, x in clip_like(40).items()})
    means, sums = np.array([0.2, 0.5, 0.4]), SearchNumbers(index)
    for mean in means:
        sums.add("image", np.arange(20), {"mrr": np.full(20, mean)}, {})
    estimate = sums.estimates()["mrr.image"]
    assert estimate.split_error == pytest.approx(means.std(ddof=1) / np.sqrt(3))
    assert estimate.error == pytest.approx(0, abs=1e-12)  # each item has the same mean
    low, high = SearchEstimate(0.3, 0.03, 0.04, 3).interval()
    assert (low + high) / 2 == pytest.approx(0.3)
    assert (high - low) / 2 == pytest.approx(2.919986 * 0.05)  # Student's t, 95 %, 2 degrees
    assert np.isnan(SearchEstimate(0.5, 0.1).interval()).all()


def test_paired_changes_have_the_error_of_differences():
    index = cg.search.MixedIndex.of({name: cg.Embeddings(x, name) for name, x in clip_like(40).items()})
    rng = np.random.default_rng(1)
    before = rng.random(40)
    after = before + 0.1 + 0.01 * rng.normal(size=40)
    one, other = SearchNumbers(index), SearchNumbers(index)
    for sums, values in ((one, before), (other, after)):
        sums.add("text", np.arange(40), {"ndcg": values}, {})
    estimate = other.estimates(less=one)["ndcg.text"]
    assert estimate.value == pytest.approx((after - before).mean())
    assert estimate.error == pytest.approx((after - before).std(ddof=1) / np.sqrt(40))


def test_ties_count_against_the_query():
    x = np.random.default_rng(0).normal(size=(12, 5))
    index = cg.search.MixedIndex.of(
        {"image": cg.Embeddings(x, "image"), "text": cg.Embeddings(np.ones((12, 5)), "text")}
    )
    assert search_index(index)["cross_r_at_1.image"].value == 0


def test_a_rate_of_hits_alone_has_the_error_of_two_hits_and_two_misses_more():
    """Agresti and Coull's variance with n + 4 queries, of which two miss: no miss was seen, but some could be."""
    x = unit(np.random.default_rng(0).normal(size=(40, 16)))
    index = cg.search.MixedIndex.of({name: cg.Embeddings(x, name, item_id=range(40)) for name in ("image", "text")})
    estimate = search_index(index)["cross_r_at_1"]
    assert estimate.value == 1 and estimate.error == pytest.approx(np.sqrt(2) / 44, rel=1e-9)
