"""Checks of pairs: their order, their spaces, the gap between them."""

import numpy as np
import pytest
from scipy.special import ndtr

import clip_geometry as cg
from clip_geometry.search.checks.pairs import LIKELIHOOD, match, random_share
from support.clip_like import clip_like, unit


def test_z_of_random_pairs_is_standard_normal():
    """The bounds hold the mean and the standard deviation of 40 draws within four of their errors."""
    every, z = np.ones(200, bool), []
    for seed in range(40):
        generator = np.random.default_rng(seed)
        a, b = (unit(generator.normal(size=(200, 16)) + 1).astype(np.float32) for _ in range(2))
        z.append(match(a, b, every, every, 0).z)
    assert abs(np.mean(z)) < 0.64 and 0.55 < np.std(z, ddof=1) < 1.45


@pytest.mark.parametrize("shift", [1, -2, 57, -150])
def test_a_cyclic_shift_is_told(run, clean, shift):
    clean["text"] = np.roll(clean["text"], shift, axis=0)
    (finding,) = run("shifted_pairs", clean)
    assert (finding.severity, finding.values["shift"], finding.values["whole"]) == ("error", shift, True)
    assert (finding.values["first"], finding.values["last"]) == (0, 399)
    assert run("shuffled_pairs", clean) == run("unrelated_spaces", clean) == []
    assert "axis=0" in finding.remedy and f"{-shift}," in finding.remedy


@pytest.mark.parametrize("modality", ["image", "text"])
@pytest.mark.parametrize(
    ("first", "size", "step"), [(1, 50, 1), (200, 50, 1), (340, 50, 7), (205, 50, -3), (3, 40, -3)]
)
def test_a_shifted_segment_is_named_with_its_first_and_last_row(run, clean, modality, first, size, step):
    """rows[200:250] = rows[201:251], an ordinary join error, which once ended in an IndexError."""
    rows = clean[modality]
    rows[first : first + size] = rows[first + step : first + step + size].copy()
    (finding,) = run("shifted_pairs", clean)
    (segment,) = finding.values["segments"]
    assert (segment["modality"], segment["first"], segment["last"]) == (modality, first, first + size - 1)
    assert segment["partners"] == [first + step, first + step + size - 1]
    assert finding.values["shift"] == (step if modality == "image" else -step)
    assert finding.severity == "error"
    assert f"rows {first} to {first + size - 1} belong with" in finding.evidence
    assert run("shuffled_pairs", clean) == []


def test_lost_rows_and_exchanged_batches_are_several_segments(run, clean):
    kept = np.delete(np.arange(400), [100, 250])
    (finding,) = run("shifted_pairs", {"image": clean["image"][:398], "text": clean["text"][kept]})
    shifts = sorted((each["first"], each["shift"]) for each in finding.values["segments"])
    assert [shift for _, shift in shifts] == [-1, -2]
    # the image of a lost text may be taken to either segment
    assert [first for first, _ in shifts] == pytest.approx([100, 249], abs=2)
    text = clean["text"].copy()
    text[50:100], text[200:250] = clean["text"][200:250], clean["text"][50:100]
    (finding,) = run("shifted_pairs", {**clean, "text": text})
    rows = sorted((each["first"], each["last"], abs(each["shift"])) for each in finding.values["segments"])
    assert rows == [(50, 99, 150), (200, 249, 150)]


def test_a_segment_of_many_rows_is_found_in_a_sample_and_named_to_the_row(run):
    sets = clip_like(6000, seed=3)
    sets["text"][3001:3501] = sets["text"][3000:3500].copy()
    (finding,) = run("shifted_pairs", sets)
    assert (finding.values["shift"], finding.values["first"], finding.values["last"]) == (1, 3001, 3500)
    assert finding.values["n"] == 2000


@pytest.mark.parametrize("seed", range(5))
def test_random_pairs_hold_no_segment(run, seed):
    """Each of 5 draws of random pairs has one with p below 0.0001."""
    sets = clip_like(300, seed=seed)
    sets["text"] = np.random.default_rng(seed).permutation(sets["text"])
    assert run("shifted_pairs", sets) == []


def test_a_shift_beside_foreign_and_invalid_rows_keeps_its_size(run, clean):
    clean["text"] = np.roll(clean["text"], 7, axis=0)
    clean["image"][50:90] = clip_like(40, space=5)["image"]
    clean["image"][200] = np.nan
    (finding,) = run("shifted_pairs", clean)
    assert finding.values["shift"] == 7


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_the_share_of_shuffled_pairs_is_estimated(run, share):
    sets = clip_like(2000, seed=4)
    rows = np.random.default_rng(0).permutation(2000)[: int(share * 2000)]
    sets["text"][rows] = sets["text"][np.roll(rows, 1)]
    (finding,) = run("shuffled_pairs", sets)
    assert abs(finding.values["share"] - share) < 3 * finding.values["error"]
    assert ("by a common item_id, a column of each file or of their table" in finding.remedy) == (share > 0.2)
    assert finding.severity == ("error" if share > 0.2 else "warning")
    # of 2,000 pairs, share (1 − start) lie beyond `start`
    tail = 1 - finding.values["start"]
    assert finding.values["error"] == pytest.approx(np.sqrt(share * tail * (1 - share * tail) / 2000) / tail, rel=0.1)
    assert run("shifted_pairs", sets) == []


@pytest.mark.parametrize(("noise", "n"), [(1.0, 300), (2.0, 300), (1.5, 1500)])
def test_a_weak_model_is_not_accused_of_random_pairs(run, noise, n):
    """Rows with much noise: the ranks of the partners fall off smoothly, as those of ConVIRT do."""
    generator = np.random.default_rng(n)
    sets = {
        name: unit(x + 1.2 * noise * generator.normal(size=x.shape) / np.sqrt(x.shape[1]))
        for name, x in clip_like(n, seed=n).items()
    }
    (finding,) = run("shuffled_pairs", sets)
    assert finding.severity == "note" and finding.values["far"] > 0.01 * n
    assert "do not distinguish a weak model" in finding.consequence
    assert run("unrelated_spaces", sets) == run("shifted_pairs", sets) == []


@pytest.mark.parametrize("noise", [0.3, 0.5])
def test_random_pairs_of_a_weaker_model_are_told(run, noise):
    generator = np.random.default_rng(1)
    sets = {
        name: unit(x + noise * generator.normal(size=x.shape) / np.sqrt(x.shape[1]))
        for name, x in clip_like(1000, seed=1).items()
    }
    rows = generator.permutation(1000)[:150]
    sets["text"][rows] = sets["text"][np.roll(rows, 1)]
    (finding,) = run("shuffled_pairs", sets)
    assert finding.severity == "warning" and abs(finding.values["share"] - 0.15) < 3 * finding.values["error"]


def test_an_untrained_model_with_related_covariances_is_not_told_that_its_join_is_wrong(run):
    """Unrelated rows through one projection: their covariances overlap, as those of shuffled pairs do."""
    generator = np.random.default_rng(0)
    projection = generator.normal(size=(100, 48)) / np.sqrt(1 + np.arange(48))
    sets = {name: unit(np.maximum(generator.normal(size=(500, 100)) + 1, 0) @ projection) for name in ("image", "text")}
    assert run("shuffled_pairs", sets) == []
    (finding,) = run("unrelated_spaces", sets)
    assert finding.severity == "warning" and finding.values["overlap_z"] > 10
    assert "do not show which of them it is" in finding.consequence


def test_random_pairs_of_one_space(run, clean):
    clean["text"] = np.random.default_rng(0).permutation(clean["text"])
    (finding,) = run("shuffled_pairs", clean)
    assert finding.values["random"] and abs(finding.values["z"]) < 4 and finding.severity == "error"
    partners = finding.values["partners"]
    assert partners["cosine"] > partners["noise"] + 2 * partners["deviation"]
    assert run("unrelated_spaces", clean) == run("shifted_pairs", clean) == []


def test_two_spaces_are_told_from_random_pairs(run, clean):
    clean["text"] = clip_like(400, space=5)["text"]
    (finding,) = run("unrelated_spaces", clean)
    assert abs(finding.values["overlap_z"]) < 4 and finding.values["count"] > 300
    assert run("shuffled_pairs", clean) == []


@pytest.mark.parametrize(("block", "share"), [(True, 0.05), (False, 0.25), (True, 0.5)])
def test_rows_of_another_model_are_found(run, block, share):
    sets = clip_like(600, seed=2)
    count = int(share * 600)
    rows = np.arange(100, 100 + count) if block else np.sort(np.random.default_rng(1).permutation(600)[:count])
    sets["image"][rows] = clip_like(count, space=9)["image"]
    (finding,) = run("mixed_models", sets)
    assert (finding.severity, finding.modalities, finding.values["block"]) == ("error", ("image",), block)
    if share < 0.5:
        assert finding.values["rows"] == rows.tolist()
    else:  # of two halves either is the smaller
        assert finding.values["rows"] in (rows.tolist(), np.setdiff1d(np.arange(600), rows).tolist())
    assert abs(finding.values["overlap"]) < 0.1


def test_manifests_that_differ(run, clean):
    def store(name, model):
        return cg.Embeddings(clean[name], name, provenance={"model": model, "encoder": {"weights": {"sha256": model}}})

    sets = {"image": store("image", "open_clip:A/x"), "text": store("text", "open_clip:A/y")}
    (finding,) = run("mixed_models", sets)
    assert finding.severity == "note" and finding.values["differing"]["model"] == ["open_clip:A/x", "open_clip:A/y"]
    clean["text"] = clip_like(400, space=5)["text"]
    sets["text"] = store("text", "open_clip:A/y")
    (finding,) = run("mixed_models", sets)
    assert finding.severity == "error" and "mean nothing" in finding.consequence
    same = {"image": store("image", "m"), "text": store("text", "m")}
    assert run("mixed_models", same) == []


def test_the_gap_is_told_with_its_chance_level(run, clean):
    (finding,) = run("modality_gap", clean)
    shares = finding.values["shares"]
    assert finding.severity == "warning" and shares["image"]["share"] > 0.9
    assert shares["image"]["chance"] == pytest.approx(399 / 799)
    gap = np.linalg.norm(clean["image"].mean(0) - clean["text"].mean(0))
    assert finding.values["gap"] == pytest.approx(gap, rel=1e-4)
    assert run("modality_gap", {"image": clean["image"], "text": unit(clean["image"] + 1e-3)}) == []


def test_one_model_raises_nothing_and_clusters_are_no_models(run, clean):
    assert run("mixed_models", clean) == []
    generator = np.random.default_rng(0)
    centers = clean["image"].mean(0) + 0.2 * generator.normal(size=(5, 64))
    clean["image"] = unit(centers[generator.integers(5, size=400)] + 0.3 * clean["image"])
    assert run("mixed_models", clean) == []


def test_the_share_of_random_pairs_is_the_density_of_the_flat_tail():
    """Uniform percentiles beside small ones: of 30 draws, 28 or more within two standard errors (p = 0.05 of fewer)."""
    hits = 0
    for seed in range(30):
        generator = np.random.default_rng(seed)
        values = np.where(generator.uniform(size=1000) < 0.3, generator.uniform(size=1000), 0.02)
        tail = random_share(np.stack([values, values], axis=1), 0.001)
        hits += abs(tail.share - 0.3) <= 2 * tail.error
        assert tail.gain > LIKELIHOOD
    assert hits >= 26
    falling = np.random.default_rng(0).normal(-0.7, 0.7, 500)  # on the probit scale: ConVIRT's deciles
    tail = random_share(np.stack([ndtr(falling)] * 2, axis=1), 0.002)
    assert tail.gain < LIKELIHOOD and tail.start > 0.5
