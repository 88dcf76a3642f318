"""Reciprocal-rank fusion: ranks counted one by one, and ties between modalities in a stated order."""

import numpy as np
import pytest

from clip_geometry.search.repairs import Known, repairs
from clip_geometry.search.repairs.maps import ReciprocalRank
from clip_geometry.search.shipping import item_map, query_map
from support.clouds import unit
from support.mixed_index import NAMES, rows


def ranks(cosines, itself=None):
    """Of one query; equal cosines by number."""
    others = [j for j in range(len(cosines)) if j != itself]
    order = sorted(others, key=lambda j: (-cosines[j], j))
    return {j: 1 + order.index(j) for j in others}


@pytest.fixture
def items():
    sets = rows(n=9, names=NAMES)
    return {"text": sets["text"], "image": sets["image"][:5], "audio": sets["audio"]}  # not in the order of names


def test_the_score_is_the_reciprocal_rank(items):
    """To 1e-9: ties move a rank by 2e-6 at most, and 1/61² is 0.0003."""
    q = rows(1, n=4)["text"]
    fused = ReciprocalRank().fit(Known(items)).mixed("text", q, items, np.array([8, 0, 3, 3]))
    for item, x in items.items():
        for i, itself in enumerate([8, 0, 3, 3]):
            expected = ranks(unit(q)[i] @ unit(x).T, itself if item == "text" else None)
            for j in range(len(x)):
                if j not in expected:
                    assert fused[item][i, j] == -np.inf
                else:
                    assert fused[item][i, j] == pytest.approx(1 / (60 + expected[j]), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "query", "order"),
    [
        ("rrf", "text", ["audio", "image", "text"]),
        ("rrf", "audio", ["image", "text", "audio"]),
        ("rrf[own-first]", "text", ["text", "audio", "image"]),
        ("rrf[own-first]", "audio", ["audio", "image", "text"]),
    ],
)
def test_equal_ranks_go_by_modality(items, name, query, order):
    """One item of each modality in turn, until the shorter ones end."""
    fused = repairs[name].make().fit(Known(items)).mixed(query, rows(1, n=4, names=NAMES)[query], items)
    modality = np.repeat(list(fused), [table.shape[1] for table in fused.values()])
    scores = np.concatenate(list(fused.values()), axis=1)
    for row in scores:
        assert len(np.unique(row)) == len(row), "no ties are left"
        fused = modality[np.argsort(-row)]
        assert fused[:15].tolist() == 5 * order
        assert fused[15:].tolist() == 4 * [each for each in order if each != "image"]


def test_equal_cosines_are_ranked_by_number():
    x = rows(n=6)["image"]
    copies = np.concatenate([x, 2 * x])
    q = rows(1, n=4)["text"]
    fused = ReciprocalRank().fit(Known({"text": q, "image": copies})).scores("text", q, "image", copies)
    assert (np.argsort(-fused, axis=1)[:, ::2] + 6 == np.argsort(-fused, axis=1)[:, 1::2]).all()


@pytest.mark.parametrize("query", NAMES)
def test_the_centered_one_ranks_other_modalities_without_their_means(items, query):
    """Within the own modality the order is that of the raw cosine."""
    q = rows(1, n=4, names=NAMES)[query]
    fused = repairs["rrf[centered]"].make().fit(Known(items)).mixed(query, q, items)
    for item, x in items.items():
        a, b = (unit(rows_) for rows_ in (q, x))
        if item != query:
            a, b = (unit(each - unit(items[name]).mean(0)) for each, name in ((a, query), (b, item)))
        assert (np.argsort(-fused[item]) == np.argsort(-(a @ b.T))).all()


@pytest.mark.parametrize("name", ["other", "other[centered]"])
def test_a_search_of_other_modalities_has_the_own_one_last(items, name):
    """Its order within each modality is that of the cosine; one inner product serves it, without any filter."""
    q = rows(1, n=4, names=NAMES)["text"]
    repair = repairs[name].make().fit(Known(items))
    fused = repair.mixed("text", q, items)
    assert fused["text"].max() < min(fused["image"].min(), fused["audio"].min())
    assert (np.argsort(-fused["text"]) == np.argsort(-(unit(q) @ unit(items["text"]).T))).all()
    for item, x in items.items():
        assert query_map(repair, "text")(q) @ item_map(repair, item)(x).T == pytest.approx(fused[item], abs=1e-12)
