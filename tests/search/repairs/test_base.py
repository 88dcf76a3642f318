"""Repairs as a kind: one inner product where they say so, an item that is the query left out, the registry."""

import re

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry.search.relevance import Relevance
from clip_geometry.search.repairs import InnerProduct, Known, Term, repairs
from clip_geometry.search.repairs.maps import ReciprocalRank
from clip_geometry.search.shipping import item_map, query_map
from support.clouds import unit
from support.mixed_index import NAMES, labelled, paired, rows

# classes as pairs determine no rotation of 70 dimensions, which is no matter here
pytestmark = pytest.mark.filterwarnings("ignore:procrustes was fitted on pairs of rank 20")

INNER = [name for name in repairs if isinstance(repairs[name].make(), InnerProduct)]


def fitted(name, names=NAMES[:2], **more):
    return repairs[name].make().fit(labelled(rows(names=names), **more))


@pytest.mark.parametrize("names", [NAMES[:2], NAMES])
@pytest.mark.parametrize("name", INNER)
def test_the_score_is_one_inner_product(name, names):
    """To 1e-12 of the largest product of coordinates: the sum has a few hundred terms, each rounded to 1e-16."""
    repair = fitted(name, names)
    assert isinstance(repair, InnerProduct)
    items = rows(1, names=names, n=12)
    for query, q in rows(2, names=names, n=9).items():
        left = query_map(repair, query)(q)
        for item, x in items.items():
            right = item_map(repair, item)(x)
            bound = 1e-12 * np.linalg.norm(left, axis=1).max() * np.linalg.norm(right, axis=1).max()
            np.testing.assert_allclose(left @ right.T, repair.scores(query, q, item, x), rtol=0, atol=bound)


@pytest.mark.parametrize("known", [paired, labelled])
def test_what_repairs_share_changes_no_score(known):
    """Each repair scores as one that was fitted alone, whatever was asked before it, and inputs stay as given."""
    sets, items = rows(), rows(1, n=12)
    shared, before = known(sets, kept={}), {name: x.copy() for name, x in items.items()}
    for name in (*repairs, *reversed(list(repairs))):
        repair, alone = (repairs[name].make().fit(each) for each in (shared, known(sets)))
        for query, q in items.items():
            scores, expected = (each.mixed(query, q, items, np.arange(12)) for each in (repair, alone))
            for item in items:
                np.testing.assert_allclose(scores[item], expected[item], rtol=1e-12, atol=1e-12)
    assert all(np.array_equal(x, before[name]) for name, x in items.items())


def test_slopes_of_rank_two_take_two_copies_of_the_rows():
    """Slopes 2, 3; 4, 5 are no product of a query's and an item's factor; 2, 3; 4, 6 are."""
    sets = rows(d=5)
    for last, copies in ((5.0, 2), (6.0, 1)):
        repair = repairs["none"].make().fit(labelled(sets))
        assert isinstance(repair, InnerProduct)
        slopes = {("image", "image"): 2.0, ("image", "text"): 3.0, ("text", "image"): 4.0, ("text", "text"): last}
        repair.terms_ = {kind: Term(0, slope) for kind, slope in slopes.items()}
        assert item_map(repair, "image")(sets["image"]).shape == (100, 5 * copies)
        for query, item in slopes:
            product = query_map(repair, query)(sets[query]) @ item_map(repair, item)(sets[item]).T
            np.testing.assert_allclose(product, repair.scores(query, sets[query], item, sets[item]), atol=1e-13)


@pytest.mark.parametrize("name", repairs)
def test_the_query_itself_is_no_result(name):
    repair, items = fitted(name), rows(1, n=11)
    numbers = np.array([4, 0, 10])
    scores = repair.mixed("text", items["text"][numbers], items, numbers)
    assert {item: table.shape for item, table in scores.items()} == {"image": (3, 11), "text": (3, 11)}
    hidden = np.isneginf(scores["text"])
    assert hidden.sum() == 3 and hidden[np.arange(3), numbers].all() and np.isfinite(scores["image"]).all()
    if not isinstance(repair, ReciprocalRank):
        for item, table in scores.items():
            alone = repair.scores("text", items["text"][numbers], item, items[item])
            assert (np.where(np.isneginf(table), alone, table) == alone).all()


@pytest.mark.parametrize("name", [name for name in repairs if not name.startswith("rrf")])
def test_a_modality_that_was_not_fitted(name):
    repair, sets = fitted(name), rows(1)
    message = f"{repair.name.replace('[', '.').replace(']', '.')} was fitted for image and text rows, but audio rows"
    with pytest.raises(InputError, match=message):
        repair.scores("audio", sets["text"], "image", sets["image"])
    if isinstance(repair, ReciprocalRank):  # items of any modality can be ranked
        return
    with pytest.raises(InputError, match=message):
        repair.scores("image", sets["text"], "audio", sets["image"])
    if isinstance(repair, InnerProduct):
        for make in (query_map, item_map):
            with pytest.raises(InputError, match=message):
                make(repair, "audio")


@pytest.mark.parametrize("name", repairs)
def test_the_lengths_of_rows_do_not_matter(name):
    """Lengths are between 0.5 and 2. To 1e-9 of the scores: rounding of cosines times slopes of a few hundred."""
    known, items = labelled(rows()), rows(1)
    plain = repairs[name].make().fit(known).mixed("text", items["text"], items)
    known = labelled({modality: unit(x) for modality, x in known.rows.items()})
    units = {modality: unit(x) for modality, x in items.items()}
    for item, table in repairs[name].make().fit(known).mixed("text", units["text"], units).items():
        np.testing.assert_allclose(table, plain[item], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rows": {"image": np.eye(3), "text": np.eye(4)}}, "expected (n, d) with one d for all"),
        ({"rows": {"image": np.ones(3)}}, "expected (n, d)"),
        ({"rows": {}}, "have the shapes none"),
        ({"logit_scale": float("nan")}, "logit_scale = nan"),
        ({"logit_scale": -5}, "logit_scale = -5"),
        ({"relevance": [[1]]}, "relevance = [[1]]; expected a Relevance"),
        ({"relevance": Relevance.of_labels(image=[0, 1], text=[0, 1, 2])}, "expected the same rows"),
        (
            {"relevance": Relevance.of_labels(a=range(3), b=range(3))},
            "relevance is of 3 a, 3 b rows, but 3 image, 3 text",
        ),
    ],
)
def test_known_rows_are_checked(given, says):
    with pytest.raises(InputError, match=re.escape(says)):
        Known(**{"rows": {"image": np.eye(3), "text": np.eye(3)}, **given})


def test_scores_before_fit_are_refused():
    with pytest.raises(InputError, match="zscore is not fitted yet"):
        repairs["zscore"].make().scores("image", np.eye(3), "text", np.eye(3))
