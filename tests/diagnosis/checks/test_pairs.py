"""Checks of pairs: their order, their spaces, the gap between them."""

import numpy as np
import pytest

import clip_geometry as cg
from support.clip_like import clip_like, unit

ORDER = ("shifted_pairs", "shuffled_pairs", "unrelated_spaces")


@pytest.mark.parametrize("n", [60, 400, 3000])
@pytest.mark.parametrize("seed", range(3))
def test_pairs_in_order_raise_nothing(run, n, seed):
    sets = clip_like(n, seed=seed)
    assert [run(name, sets) for name in ORDER] == [[], [], []]


@pytest.mark.parametrize("shift", [1, -2, 57, -150])
def test_a_cyclic_shift_is_told(run, clean, shift):
    clean["text"] = np.roll(clean["text"], shift, axis=0)
    (found,) = run("shifted_pairs", clean)
    assert (found.severity, found.values["shift"], found.values["start"]) == ("error", shift, 0)
    assert run("shuffled_pairs", clean) == run("unrelated_spaces", clean) == []
    assert "axis=0" in found.remedy and f"{-shift}," in found.remedy


def test_a_lost_row_shifts_what_follows(run, clean):
    clean["text"][160:-1] = clean["text"][161:].copy()
    (found,) = run("shifted_pairs", clean)
    assert found.values["shift"] == -1 and abs(found.values["start"] - 160) <= 3
    assert found.values["count"] == pytest.approx(0.95 * 239, abs=15)  # 5% match as given, by chance


def test_a_shift_beside_foreign_and_invalid_rows_keeps_its_size(run, clean):
    clean["text"] = np.roll(clean["text"], 7, axis=0)
    clean["image"][50:90] = clip_like(40, space=5)["image"]
    clean["image"][200] = np.nan
    (found,) = run("shifted_pairs", clean)
    assert found.values["shift"] == 7


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_the_share_of_shuffled_pairs_is_estimated(run, share):
    sets = clip_like(2000, seed=4)
    rows = np.random.default_rng(0).permutation(2000)[: int(share * 2000)]
    sets["text"][rows] = sets["text"][np.roll(rows, 1)]
    (found,) = run("shuffled_pairs", sets)
    assert abs(found.values["share"] - share) < 3 * found.values["error"]
    assert found.severity == ("error" if share > 0.2 else "warning")
    assert found.values["error"] == pytest.approx(2 * np.sqrt(share / 2 * (1 - share / 2) / 2000), rel=0.1)
    assert run("shifted_pairs", sets) == []


def test_random_pairs_of_one_space(run, clean):
    clean["text"] = np.random.default_rng(0).permutation(clean["text"])
    (found,) = run("shuffled_pairs", clean)
    assert found.values["random"] and abs(found.values["z"]) < 4
    assert run("unrelated_spaces", clean) == run("shifted_pairs", clean) == []


def test_two_spaces_are_told_from_random_pairs(run, clean):
    clean["text"] = clip_like(400, space=5)["text"]
    (found,) = run("unrelated_spaces", clean)
    assert abs(found.values["overlap_z"]) < 4 and found.values["count"] > 300
    assert run("shuffled_pairs", clean) == []


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
def test_rows_of_another_model_are_found(run, block, share):
    sets = clip_like(600, seed=2)
    count = int(share * 600)
    rows = np.arange(100, 100 + count) if block else np.sort(np.random.default_rng(1).permutation(600)[:count])
    sets["image"][rows] = clip_like(count, space=9)["image"]
    (found,) = run("mixed_models", sets)
    assert (found.severity, found.modalities, found.values["block"]) == ("error", ("image",), block)
    if share < 0.5:
        assert found.values["rows"] == rows.tolist()
    else:  # of two halves either is the smaller
        assert found.values["rows"] in (rows.tolist(), np.setdiff1d(np.arange(600), rows).tolist())
    assert abs(found.values["overlap"]) < 0.1


def test_one_model_raises_nothing_and_clusters_are_no_models(run, clean):
    assert run("mixed_models", clean) == []
    generator = np.random.default_rng(0)
    centers = clean["image"].mean(0) + 0.2 * generator.normal(size=(5, 64))
    clean["image"] = unit(centers[generator.integers(5, size=400)] + 0.3 * clean["image"])
    assert run("mixed_models", clean) == []


def test_manifests_that_differ(run, clean):
    def store(name, model):
        return cg.Embeddings(clean[name], name, provenance={"model": model, "encoder": {"weights": {"sha256": model}}})

    sets = {"image": store("image", "open_clip:A/x"), "text": store("text", "open_clip:A/y")}
    (found,) = run("mixed_models", sets)
    assert found.severity == "note" and found.values["differing"]["model"] == ["open_clip:A/x", "open_clip:A/y"]
    clean["text"] = clip_like(400, space=5)["text"]
    sets["text"] = store("text", "open_clip:A/y")
    (found,) = run("mixed_models", sets)
    assert found.severity == "error" and "mean nothing" in found.consequence
    same = {"image": store("image", "m"), "text": store("text", "m")}
    assert run("mixed_models", same) == []


def test_the_gap_is_told_with_its_chance_level(run, clean):
    (found,) = run("modality_gap", clean)
    shares = found.values["shares"]
    assert found.severity == "warning" and shares["image"]["share"] > 0.9
    assert shares["image"]["chance"] == pytest.approx(399 / 799)
    gap = np.linalg.norm(clean["image"].mean(0) - clean["text"].mean(0))
    assert found.values["gap"] == pytest.approx(gap, rel=1e-4)
    assert run("modality_gap", {"image": clean["image"], "text": unit(clean["image"] + 1e-3)}) == []
