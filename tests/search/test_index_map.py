"""`cg.search.map_index`: the recall that it predicts is the one that the whole re-embedded index shows."""

import os
from pathlib import Path

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.registry import InputError
from clip_geometry.search.index_map import _recall
from clip_geometry.transforms import RankWarning
from support.clouds import rotation, unit

RIDGE = ["ridge(0.01)"]


def two_models(n, seed, noise=0.5, d=24, e=16):
    """Rows of two nonlinear models of the same items, which have clusters."""
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(30, 8))[rng.integers(30, size=n)] + 0.7 * rng.normal(size=(n, 8))
    old = items @ rng.normal(size=(8, d)) + noise * rng.normal(size=(n, d))
    return old, np.tanh(items @ rng.normal(size=(8, e)) / 4) + 0.05 * rng.normal(size=(n, e))


def overlap(queries, mapped, new, k):
    """The share of the k nearest new rows that are among the k nearest mapped ones."""
    ours, true = (np.argsort(-unit(queries) @ unit(x).T, axis=1)[:, :k] for x in (mapped, new))
    return np.mean([len(set(a) & set(b)) / k for a, b in zip(ours, true, strict=True)])


@pytest.mark.usefixtures("no_type_checker")
def test_predicted_recall_is_that_of_the_whole_index():
    """Six draws of models, items and re-embedded rows; queries are items that are not in the index."""
    deviations, inside = [], []
    for seed in range(6):
        old, new = two_models(3000, seed, noise=[0.2, 0.5, 1.0, 2.0][seed % 4])
        rows = np.random.default_rng(seed).permutation(2500)[:300]
        mapped = cg.search.map_index(old[:2500], new[rows], rows, candidates=RIDGE, seed=seed)
        true = overlap(new[2500:], mapped.transform(old[:2500]), new[:2500], 10)
        deviations.append((mapped.recall - true) / mapped.standard_error)
        inside.append(mapped.interval[0] <= true <= mapped.interval[1])
        assert mapped.standard_error < 0.1
    assert sum(inside) >= 5 and abs(np.mean(deviations)) < 1 and np.std(deviations) < 1.6, deviations


def test_queries_of_another_kind():
    """Queries that are unlike the items, such as texts, are searched with their own recall."""
    old, new = two_models(3500, 0, noise=1.0)
    asked = new[2500:] + 0.3 * np.random.default_rng(1).normal(size=(1000, 16))
    rows = np.random.default_rng(2).permutation(2500)[:400]
    mapped = cg.search.map_index(old[:2500], new[rows], rows, queries=asked[:500], candidates=RIDGE)
    true = overlap(asked[500:], mapped.transform(old[:2500]), new[:2500], 10)
    assert mapped.interval[0] <= true <= mapped.interval[1]


def test_mapped_queries_find_what_was_predicted_in_the_untouched_index():
    """The ranking is that of FAISS on the old rows, for queries of the new model after the map."""
    faiss = pytest.importorskip("faiss")
    old, new = two_models(3000, 1, noise=0.3)
    rows = np.random.default_rng(1).permutation(2500)[:400]
    mapped = cg.search.map_index(old[:2500], new[rows], rows, side="queries", candidates=RIDGE)
    asked = mapped.transform(new[2500:])
    index = faiss.IndexFlatIP(24)
    index.add(unit(old[:2500]).astype(np.float32))
    _, found = index.search(asked.astype(np.float32), 10)
    assert np.array_equal(found[:, 0], (asked @ unit(old[:2500]).T).argmax(1))
    true = np.argsort(-unit(new[2500:]) @ unit(new[:2500]).T, axis=1)[:, :10]
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, true, strict=True)])
    assert mapped.interval[0] <= recall <= mapped.interval[1] and recall > 0.2
    assert "With queries mapped by ridge" in repr(mapped)


def test_the_interval_allows_for_the_choice_among_candidates():
    old, new = two_models(1500, 0)
    rows = np.random.default_rng(0).permutation(1500)[:300]
    few, many = (
        cg.search.map_index(old, new[rows], rows, candidates=names) for names in (RIDGE, ["ridge(0.01)", "ridge(100)"])
    )
    assert few.recall == many.recall and many.candidates[0].steps == "ridge(alpha=0.01)"
    margins = [(each.interval[1] - each.recall) / each.standard_error for each in (few, many)]
    assert margins == pytest.approx([1.960, 2.241], abs=1e-3)  # quantiles of the normal distribution: 5% and 2.5%


def test_a_turned_model_and_an_unrelated_one():
    old, _ = two_models(1500, 0)
    rows = np.arange(1500)[::5]
    turned = cg.search.map_index(old, (old @ rotation(24, np.random.default_rng(1)))[rows], rows)
    assert turned.candidates[0].recall == 1 and turned.recall > 0.97 and turned.interval[1] == 1
    names = [each.steps for each in turned.candidates]
    assert "none" in names and turned.candidates[names.index("none")].recall < 0.3
    unrelated = np.random.default_rng(2).normal(size=(300, 16))
    assert cg.search.map_index(old, unrelated, rows, candidates=RIDGE).interval[0] < 0.03


def test_the_best_map_is_fitted_on_all_and_saved(tmp_path):
    old, new = two_models(1500, 0)
    rows = np.random.default_rng(0).permutation(1500)[:300]
    mapped = cg.search.map_index(old, new[rows], rows, candidates=["ridge(100)", "ridge(0.01)", "procrustes"])
    assert mapped.candidates[0].steps == "ridge(alpha=0.01)"
    assert not {"procrustes", "none"} & {each.steps for each in mapped.candidates}  # of 24 and 16 dimensions
    expected = cg.transforms.Ridge(0.01).fit(unit(old[rows]), unit(new[rows])).transform(unit(old))
    assert np.allclose(mapped.transform(old), unit(expected))
    mapped.save(tmp_path / "map.safetensors")
    assert np.array_equal(
        cg.Pipeline.load(tmp_path / "map.safetensors").transform({"any": old})["any"], mapped.transform(old)
    )
    assert f"predicted recall at 10 of {mapped.recall:.3f}" in repr(mapped)
    assert "300 rows were re-embedded" in repr(mapped)


def test_few_pairs_are_said():
    old, new = two_models(210, 0, d=205, e=205)
    with pytest.warns(RankWarning, match="procrustes was fitted on pairs of rank"):
        cg.search.map_index(old, new[:200], np.arange(200), candidates=["procrustes"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": np.arange(199)}, "rows are .* for 200 new rows; expected .* different rows of old, from 0 to 999"),
        ({"rows": np.arange(200.0)}, "rows are .*; expected the numbers of different rows"),
        ({"rows": [[1], [2, 3]]}, "rows are .*; expected the numbers of different rows"),
        ({"rows": np.zeros(200, int)}, "expected the numbers of different rows"),
        ({"rows": np.arange(200) + 900}, "expected the numbers of different rows of old, from 0 to 999"),
        ({"new": np.ones((20, 3)), "rows": np.arange(20)}, "one for each of at least 200 new rows, better 1,000"),
        ({"side": "both"}, "side 'both' is unknown; known are 'items', 'queries'"),
        ({"old": "old.npy"}, "old is a str; expected a numpy array"),
        ({"k": 300}, "k = 300; expected a whole number from 1 to 250, a quarter of the 1000 rows"),
        ({"queries": np.ones((5, 7))}, "queries have dimension 7 and new rows 16"),
        ({"queries": np.ones((5, 16)), "k": 1}, "only about 1 of the 1 nearest items .* re-embed 4000 rows"),
        ({"candidates": ["ridge(0.1, rank=500)"]}, r"no candidate suits .*; give one such as ridge\(0.1\)"),
        (
            {"candidates": ["ridge[a-to-b]"]},
            r"candidate ridge\[a-to-b\]; expected a map fitted on pairs, without brackets",
        ),
    ],
)
def test_what_cannot_be_mapped(changed, message):
    old, new = two_models(1000, 0)
    given = {"old": old, "new": new[:200], "rows": np.arange(200)} | changed
    with pytest.raises(InputError, match=message):
        cg.search.map_index(**given)


def test_real_rows_after_a_distortion():
    """Images of COCO through CLIP, and the same after a random layer with tanh in place of a new model."""
    if "CLIP_GEOMETRY_DATA" not in os.environ:
        pytest.skip("CLIP_GEOMETRY_DATA is not set")
    old = np.load(Path(os.environ["CLIP_GEOMETRY_DATA"], "embeddings/coco500-clip-vit-b16/image.npy")).astype(float)
    rng, old = np.random.default_rng(0), cg.transforms.PCA(64).fit_transform(old)  # few dimensions, for speed
    new = np.tanh(3 * old @ rng.normal(size=(64, 64))) @ rng.normal(size=(64, 64))
    rows = rng.permutation(400)[:200]
    mapped = cg.search.map_index(old[:400], new[rows], rows, k=5, candidates=["ridge(0.1)", "ridge(1)"])
    true = overlap(new[400:], mapped.transform(old[:400]), new[:400], 5)
    assert abs(mapped.recall - true) < 3 * mapped.standard_error and 0.2 < true < 0.9


def test_estimate_from_the_whole_index_is_recall_itself():
    """If every row was re-embedded and thresholds are known, what is estimated is the overlap of pairs above them."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=(60, 200))
    mapped = true + 0.2 * rng.normal(size=(60, 200))
    near = [np.argsort(-each, axis=1)[:, :10] for each in (mapped, true)]
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(*near, strict=True)])
    threshold = -np.sort(-mapped, axis=1)[:, 9:11].mean(1)
    assert _recall(mapped, true, threshold, 10 / 200) == pytest.approx(recall, abs=0.03)
    assert _recall(true, true, -np.sort(-true, axis=1)[:, 9:11].mean(1), 10 / 200) == 1
