"""What the checks are made of: overlap of spaces, tails of distances, samples of large sets, the registry."""

import numpy as np
import pytest
import torch

import clip_geometry as cg
from clip_geometry.search import checks as module
from clip_geometry.search.checks import Context, NotRun, run_checks
from clip_geometry.search.checks.copies import too_near
from clip_geometry.search.checks.modalities import Gaussian, overlap
from support.clip_like import clip_like


def test_overlap_of_random_rotations_has_the_stated_moments():
    """Mean 0 and standard deviation 1 of z, whatever the spectra: 300 rotations leave 0.06 and 0.04."""
    generator = np.random.default_rng(0)
    a = generator.normal(size=(200, 12)) * np.exp(-np.arange(12) / 2)
    b = generator.normal(size=(300, 12)) / (1 + np.arange(12)) + 0.3
    scores = []
    for _ in range(300):
        q, r = np.linalg.qr(generator.normal(size=(12, 12)))
        scores.append(overlap(a, b @ (q * np.sign(np.diag(r)))).z)
    assert abs(np.mean(scores)) < 4 * 0.06 and np.std(scores) == pytest.approx(1, abs=4 * 0.05)


@pytest.mark.parametrize("n", [30, 400])
def test_noise_has_the_mean_and_covariance_of_the_rows(n):
    """Up to float32: variances are 0.01 to 0.1. Draws are of length 1."""
    rows = clip_like(n, seed=2)["image"]
    mean, root = Gaussian.of(rows)
    covariance = np.cov(rows.T, bias=True)
    assert np.abs(root.numpy().T @ root.numpy() - covariance).max() < 1e-6
    assert np.abs(mean.numpy() - rows.mean(0)).max() < 1e-6
    drawn = Gaussian(mean, root).draw(1000, torch.Generator().manual_seed(0))
    assert np.abs(np.linalg.norm(drawn, axis=1) - 1).max() < 1e-5


def test_tail_of_smooth_data_has_no_copies():
    """The false alarms of 200 draws in 3 to 20 dimensions; each has p < 0.0001."""
    for seed in range(200):
        generator = np.random.default_rng(seed)
        m = int(generator.integers(3, 20))
        distances = generator.uniform(size=500) ** (1 / m)
        assert too_near(distances) is None


def test_tail_finds_planted_distances():
    generator = np.random.default_rng(0)
    distances = generator.uniform(size=2000) ** (1 / 4)
    distances[:14] = 0.05 * generator.uniform(size=14)
    tail = too_near(distances)
    assert tail is not None and tail.marked == 14
    # n r^4 with r the largest of the 14; a tenth more or less of the power is a factor of 3
    exact = 2000 * distances[:14].max() ** 4
    assert exact / 4 < tail.expected < exact * 4


def test_large_sets_are_sampled_and_say_so(monkeypatch):
    monkeypatch.setattr(module, "WORK", 200 * 1000)
    sets = {"image": cg.Embeddings(clip_like(1000)["image"], "image")}
    sets["image"].vectors[500:700] = sets["image"].vectors[100:300] + np.float32(1e-5)
    context = Context(sets, seed=1)
    assert len(context.neighbors("image").queries) == 200
    (finding,) = run_checks(context, ["near_duplicates"])
    assert "sampled" in finding.evidence and finding.values["n"] == 200
    monkeypatch.setattr(module, "ROWS", 300)
    assert len(Context(sets).unit("image")) == 300


def test_clean_sets_raise_only_the_gap():
    """400 pairs of 64 dimensions, ten seeds: what is reported is the gap that is there."""
    for seed in range(10):
        sets = {name: cg.Embeddings(x, name) for name, x in clip_like(400, seed=seed).items()}
        findings = run_checks(Context(sets))
        assert {each.check for each in findings} == {"modality_gap"}


def test_findings_come_by_severity_and_read_as_text():
    sets = clip_like(90)
    sets["image"][0] = 0
    findings = run_checks(Context({name: cg.Embeddings(x, name) for name, x in sets.items()}))
    assert [each.severity for each in findings] == sorted(
        (e.severity for e in findings), key=["error", "warning", "note"].index
    )
    assert str(findings[0]).startswith("invalid_rows (image, error): 1 of 90 (1.1 ± 1.1%) image rows is zero")
    for each in findings:
        for text in (each.evidence, each.consequence, each.remedy):
            assert text and "  " not in text and text.endswith(".") and " ," not in text and " ." not in text


def test_what_was_not_checked_is_listed_with_its_reason():
    sets = {name: cg.Embeddings(x, name) for name, x in clip_like(60).items()}
    context = Context(sets)
    run_checks(context)
    reasons = {(each.check, each.modalities): each.reason for each in context.not_run}
    assert NotRun("hubs", "fewer than 100 rows", ("image",)) in context.not_run
    assert reasons["near_duplicates", ("image", "text")] == "fewer than 100 distinct pairs"
    assert reasons["leakage", ()] == "no other split was given"
    assert reasons["wrong_activation", ("text",)].startswith("no manifest")
    apart = Context({"image": sets["image"], "text": sets["text"].take(np.arange(40))})
    run_checks(apart)
    assert ("shuffled_pairs", "no rows of two modalities pair", ()) in apart.not_run
    full = Context(
        {name: cg.Embeddings(x, name, labels=np.arange(400) % 4) for name, x in clip_like(400).items()},
        other={name: cg.Embeddings(x, name) for name, x in clip_like(200, seed=5).items()},
    )
    run_checks(full)
    names = {each.check for each in full.not_run}
    assert names == {"wrong_activation", "truncated_captions"}
