"""Which repair is recommended, on sets that are built so that the answer is known."""

from contextlib import contextmanager

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.registry import InputError
from clip_geometry.search.repairs import repairs
from support.clip_like import clip_like

NAMES = ["center", "zscore", "posterior", "rrf"]


def index_of(rows, **fields):
    return cg.search.MixedIndex.of({name: cg.Embeddings(x, name, **fields) for name, x in rows.items()})


@pytest.fixture(scope="module")
def compared():
    return cg.search.compare_repairs(index_of(clip_like(300)), NAMES, splits=3)


def test_a_calibration_costs_nothing_and_helps(compared):
    taken = compared.served()
    assert taken.name in ("zscore", "posterior")
    assert taken.changes["mrr"].interval()[0] > 0.1
    assert taken.changes["cross_r_at_1"][:2] == (0, 0)
    assert taken.numbers["neighbors"].value == 1
    assert not taken.costs


def test_a_baseline_that_is_best_is_recommended(compared):
    """Two lists of which each is the best of its modality: with pairs, nothing shows that one of them is too long."""
    rrf = compared.candidates["rrf"]
    assert rrf.numbers["own_share"].value == pytest.approx(0.5)
    assert rrf.numbers["kept"].value == 1
    assert compared.recommended == "rrf" and compared.state("rrf") == "recommended"


def test_no_candidate_beats_one_of_the_front(compared):
    points = {
        name: (c.numbers[compared.aim].value, c.numbers["cross_r_at_1"].value)
        for name, c in compared.candidates.items()
    }
    for name in compared.front:
        assert not any(a > points[name][0] and b > points[name][1] for a, b in points.values())
    assert max(points, key=lambda name: points[name]) in compared.front


def test_what_costs_recall_says_so():
    """Least squares on fewer pairs than dimensions fits them and no others."""
    compared = cg.search.compare_repairs(index_of(clip_like(90)), ["least_squares"], splits=2)
    costs = compared.candidates["least_squares"].costs
    assert {cost.of for cost in costs} >= {"recall"}
    assert str(costs[0]).startswith("recall of image queries across modalities −")


def test_a_repair_that_cannot_be_fitted_is_left_out_with_the_reason():
    compared = cg.search.compare_repairs(index_of(clip_like(60, d=16)), ["whiten", "zscore"], splits=2)
    assert "whiten" in compared.failed
    assert "whiten" not in compared.candidates


def test_progress_counts_the_fits():
    seen = []

    @contextmanager
    def progress(description, total, done=0):
        seen.append(total)
        yield seen.append

    cg.search.compare_repairs(index_of(clip_like(60)), ["zscore"], splits=2, progress=progress)
    assert seen == [4, 2, 2]


def test_what_cannot_be_compared_is_refused():
    rows = clip_like(60)
    with pytest.raises(InputError, match="need two modalities"):
        cg.search.compare_repairs(index_of({"image": rows["image"]}))
    with pytest.raises(InputError, match="nothing says which items are relevant"):
        cg.search.compare_repairs(index_of({"image": rows["image"], "text": rows["text"][:50]}))
    labels = {"image": np.repeat(["a", "b"], 30), "text": [*np.repeat(["c", "d"], 29), "e", "f"]}
    labels["image"][0] = "f"  # one query of sixty, which is no held-out one with this seed
    unrelated = cg.search.MixedIndex.of({name: cg.Embeddings(x, name, labels=labels[name]) for name, x in rows.items()})
    with pytest.raises(InputError, match="no held-out query has a relevant item of another modality"):
        cg.search.compare_repairs(unrelated, ["zscore"], splits=1)
    with pytest.raises(InputError, match="unknown repair 'zscores'"):
        cg.search.compare_repairs(index_of(rows), ["zscores"])
    with pytest.raises(InputError, match="splits = 0"):
        cg.search.compare_repairs(index_of(rows), splits=0)


def test_rerankers_are_compared_where_they_are_named():
    """No index can hold their scores."""
    index = index_of(clip_like(60, d=8))
    compared = cg.search.compare_repairs(index, splits=1)
    assert {*compared.candidates, *compared.failed} == {name for name, each in repairs.items() if not each.reranker}
    assert {*cg.search.compare_repairs(index, ["quantile"], splits=1).candidates} == {"none", "quantile"}
