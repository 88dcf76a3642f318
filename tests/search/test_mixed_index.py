import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.registry import InputError


def sets(n=6, m=6, **fields):
    rng = np.random.default_rng(0)
    return {
        "image": cg.Embeddings(rng.normal(size=(n, 4)), "image", **fields.get("image", {})),
        "text": cg.Embeddings(rng.normal(size=(m, 4)), "text", **fields.get("text", {})),
    }


def test_pairs_by_position():
    index = cg.search.MixedIndex.of(sets())
    assert index.by == "pairs"
    assert not index.complete
    relevance = index.relevance(index.all_rows)
    assert relevance.dense("image", "text").tolist() == np.eye(6).tolist()
    assert not relevance.dense("image", "image").any()


def test_captions_of_one_image_are_one_item():
    ids = {"image": {"item_id": ["b", "a", "c"]}, "text": {"item_id": ["a", "b", "b", "c", "c", "c"]}}
    index = cg.search.MixedIndex.of(sets(3, 6, **ids))
    relevance = index.relevance({"image": np.array([0, 2]), "text": np.array([1, 2, 5])})
    assert relevance.dense("image", "text").tolist() == [[1, 1, 0], [0, 0, 1]]
    assert relevance.dense("text", "image").tolist() == [[1, 0], [1, 0], [0, 1]]
    for split in index.splits(5, seed=0, most_fit=9, most_searched=9, most_queries=9):
        fit, searched = ({index.groups[name][row] for name in ids for row in part[name]} for part in split[:2])
        assert not fit & searched


def test_rows_without_a_partner_are_items_of_their_own():
    ids = {"image": {"item_id": ["a", "b", "c"]}, "text": {"item_id": ["b", "x", "y"]}}
    index = cg.search.MixedIndex.of(sets(3, 3, **ids))
    assert len(index.items) == 5
    assert index.relevance(index.all_rows).dense("image", "text").sum() == 1


def test_labels_win_over_pairs_and_missing_ones_match_nothing():
    labels = {
        "image": {"labels": np.array([1, 2, None, 2], dtype=object)},
        "text": {"labels": np.array(["2", "", None])},
    }
    index = cg.search.MixedIndex.of(sets(4, 3, **labels))
    assert (index.by, index.complete) == ("labels", True)
    relevance = index.relevance(index.all_rows)
    assert relevance.dense("image", "text").tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert relevance.dense("image", "image").sum() == 2


def test_a_vocabulary_is_in_both_halves():
    index = cg.search.MixedIndex.of(sets(8, 3, image={"labels": [0, 1] * 4}, text={"labels": [0, 1, 2]}))
    for split in index.splits(3, seed=1, most_fit=2, most_searched=9, most_queries=2):
        assert (len(split.fit["image"]), len(split.fit["text"])) == (2, 2)
        assert (len(split.searched["image"]), len(split.searched["text"])) == (4, 3)
        assert {name: len(rows) for name, rows in split.queries.items()} == {"image": 2, "text": 2}
        assert set(split.queries["image"]) <= set(split.searched["image"])
        assert not set(split.fit["image"]) & set(split.searched["image"])


def test_what_is_not_known_is_refused():
    with pytest.raises(InputError, match="by labels was asked for, but image rows have no labels"):
        cg.search.MixedIndex.of(sets(), by="labels")
    with pytest.raises(InputError, match="by pairs was asked for, but the rows do not pair"):
        cg.search.MixedIndex.of(sets(6, 5), by="pairs")
    assert cg.search.MixedIndex.of(sets(6, 5)).by is None


def test_a_label_is_one_label_in_every_type():
    labels = {"image": {"labels": [1.0, 2.0, 2.5, 1.0]}, "text": {"labels": np.array(["1", "2", "2.5"])}}
    index = cg.search.MixedIndex.of(sets(4, 3, **labels))
    assert index.relevance(index.all_rows).dense("image", "text").tolist() == [
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
        [1, 0, 0],
    ]


def test_labels_without_any_in_common_are_refused():
    labels = {"image": {"labels": ["cat"] * 4}, "text": {"labels": [3, 3, 3]}}
    with pytest.raises(InputError, match=r"have no label in common \('cat' of image rows and 3 of text rows\)"):
        cg.search.MixedIndex.of(sets(4, 3, **labels))
