"""Checks of whole sets: their dimensions, hubs, size, and what their manifests say."""

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.search.checks import Context, checks
from clip_geometry.search.checks.modalities import LEAST
from support.clip_like import clip_like, unit


def test_dead_coordinates(run, clean):
    clean["image"][:, [3, 9]] = 0
    clean["image"][:, 20] = 0.05
    (finding,) = run("dead_dimensions", {**clean, "image": clean["image"]})
    assert (finding.values["coordinates"], finding.values["zero"]) == ([3, 9, 20], 2)
    assert "3 of 64 coordinates of the image rows are constant (2 of them zero)" in finding.evidence


def test_coordinates_that_are_constant_by_design_are_a_note(run):
    """3 of 384, as all-MiniLM-L6-v2 has: two that are zero up to 1e-33 and one of 1e-8."""
    sets = clip_like(300, d=384)
    for x in sets.values():
        x[:, [127, 223]] = 1e-33 * np.random.default_rng(0).normal(size=(300, 2))
        x[:, 319] = -2e-8
    for given in (sets, {"text": sets["text"]}):
        for finding in run("dead_dimensions", given):
            assert finding.severity == "note" and finding.values["by_design"]
            assert "embed again" not in finding.remedy and finding.remedy.startswith("No action is needed")
    many = {name: x.copy() for name, x in sets.items()}
    many["image"][:, :40] = 0
    by_modalities = {finding.modalities: finding for finding in run("dead_dimensions", many)}
    assert by_modalities["image",].severity == "warning" and by_modalities["text",].severity == "note"
    many["text"][:, :40] = 0  # a model that pads its rows does so in every modality
    assert {each.severity for each in run("dead_dimensions", many)} == {"note"}


@pytest.mark.parametrize("n", [200, 3000])
def test_lost_directions(run, n):
    sets = clip_like(n, d=128)
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(128, 40)))[0]
    sets["text"] = unit(sets["text"] @ basis @ basis.T)
    (finding,) = run("dead_dimensions", sets)
    assert finding.modalities == ("text",) and finding.values["low_rank"]
    assert 40 <= finding.values["rank"] <= 50  # rounding noise can pass for a few directions


def test_rows_in_one_direction(run, clean):
    (finding,) = run("dead_dimensions", {"image": unit(clean["image"] + 20)})
    assert finding.values["collapsed"] and finding.severity == "error"


def test_a_row_in_the_middle_is_a_hub(run):
    x = clip_like(500, d=128, seed=6)["image"]
    assert run("hubs", {"image": x}) == []
    x[17] = x.mean(0) / np.linalg.norm(x.mean(0))
    (finding,) = run("hubs", {"image": x})
    assert (finding.severity, finding.values["rows"]) == ("warning", [17])
    cosines = x @ x.T
    np.fill_diagonal(cosines, -2)
    lists = (np.argsort(-cosines, axis=1)[:, :10] == 17).any(1).sum()
    assert finding.values["largest"] == finding.values["reached"] == lists


def test_a_hub_among_more_rows_than_the_null_has(run):
    """The null is capped at 20,000 rows: that neither hides a hub nor makes one of a usual row."""
    x = unit(np.random.default_rng(0).normal(size=(25_000, 64)).astype(np.float32) + 0.5)
    assert run("hubs", {"image": x}) == []
    x[17] = unit(x.mean(0, keepdims=True))[0]
    (finding,) = run("hubs", {"image": x})
    assert finding.values["rows"] == [17] and finding.values["n"] == 25_000


def coco_like(n=500, d=128, seed=6):
    """Two cones with a gap, of rows in many directions, as CLIP's are."""
    generator = np.random.default_rng(seed)
    item, cones = generator.normal(size=(n, d)), generator.normal(size=(2, d))
    rows = (cone + 0.6 * (item + 0.5 * generator.normal(size=(n, d))) for cone in cones)
    return dict(zip(("image", "text"), map(unit, rows), strict=True))


@pytest.mark.parametrize(("modality", "other", "strength"), [("text", "image", 0.4), ("image", "text", 1.0)])
def test_a_row_moved_to_the_other_modality_is_a_hub_across(run, modality, other, strength):
    sets = coco_like()
    assert run("hubs", sets) == []
    sets[modality][17] = unit((sets[modality][17] + strength * sets[other].mean(0))[None])[0]
    first = ((sets[other] @ sets[modality].T).argmax(1) == 17).sum()
    (finding,) = [each for each in run("hubs", sets) if each.values["kind"] == "across"]
    assert (finding.severity, finding.modalities) == ("warning", (modality, other))
    assert finding.values["rows"] == [17] and finding.values["largest"] == first > 50
    assert f"row 17 is first for {first} of 500" in finding.evidence


def test_a_hub_within_one_class(run):
    """The middle of a class of 60 is near its members only: no hub among all rows."""
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(6, 128))
    labels = np.repeat(np.arange(6), 60)
    x = unit(2 * centers[labels] + 16 * generator.normal(size=(360, 128)) / np.sqrt(1 + np.arange(128)))
    assert run("hubs", {"image": x}, labels=labels) == []
    members = np.flatnonzero(labels == 2)
    x[members[7]] = unit(x[members].mean(0)[None])[0]
    assert run("hubs", {"image": x}) == []
    (finding,) = run("hubs", {"image": x}, labels=labels)
    assert (finding.values["kind"], finding.values["rows"], finding.values["label"]) == ("class", [members[7]], "2")
    assert "of class 2" in finding.evidence and finding.values["largest"] > 0.5 * finding.values["lists"]


@pytest.mark.parametrize("count", [1, 3])
def test_rows_of_the_other_modality_are_found(run, clean, count):
    assert run("misplaced_rows", clean) == []
    clean["image"][5 : 5 + count] = clean["text"][50 : 50 + count]
    (finding,) = run("misplaced_rows", clean)
    assert (finding.severity, finding.modalities) == ("error", ("image", "text"))
    assert finding.values["rows"] == list(range(5, 5 + count))
    assert finding.values["away"] > 6 > finding.values["usual"] and finding.values["among"] < 4


def test_a_check_of_misplaced_rows_that_cannot_run_says_why(clean):
    def reasons(**sets):
        context = Context({name: cg.Embeddings(x, name) for name, x in sets.items()}, other=None, seed=3)
        assert list(checks["misplaced_rows"].function(context)) == []
        return [(each.check, each.reason, each.modalities) for each in context.not_run]

    both, image, text = ("image", "text"), clean["image"], clean["text"]
    assert reasons(image=image) == [("misplaced_rows", "one modality only", ())]
    assert reasons(image=image, text=text[:, :9]) == [("misplaced_rows", "different dimensions", both)]
    assert reasons(image=image, text=text[:5]) == [("misplaced_rows", f"fewer than {LEAST} rows of both", both)]


def test_too_few_rows(run):
    assert run("too_few_rows", clip_like(200)) == []
    (finding, _) = run("too_few_rows", clip_like(100))
    assert finding.severity == "note" and finding.values["error"] == pytest.approx(5.0)
    (finding, _) = run("too_few_rows", clip_like(40))
    assert finding.severity == "warning" and "not determined" in finding.consequence


def stores(sets, model, **facts):
    provenance = {"model": model, "encoder": facts}
    return {name: cg.Embeddings(x, name, provenance=provenance) for name, x in sets.items()}


B32 = "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af"


@pytest.mark.parametrize(
    ("model", "facts", "wrong"),
    [
        ("open_clip:ViT-B-32/openai", {"activation": "GELU"}, True),
        ("open_clip:ViT-B-32-quickgelu/openai", {"activation": "QuickGELU"}, False),
        ("open_clip:ViT-B-32@/w/ViT-B-32.pt", {"activation": "GELU", "weights": {"sha256": B32}}, True),
        ("open_clip:ViT-B-32@/w/mine.pt", {"activation": "GELU", "weights": {"sha256": "00"}}, False),
        ("open_clip:RN50/openai", {"activation": "QuickGELU, ReLU"}, False),
        ("open_clip:ViT-B-32/laion2b_s34b_b79k", {"activation": "GELU"}, False),
        ("open_clip:ViT-B-32/laion2b_s34b_b79k", {"activation": "QuickGELU"}, True),
        ("hf-clip:openai/clip-vit-base-patch32", {"activation": "gelu"}, True),
        ("hf-clip:openai/clip-vit-base-patch32", {"activation": "quick_gelu"}, False),
        ("open_clip:ViT-B-32/fresh", {"activation": "GELU"}, False),
        ("local-dir:mine", {"activation": "GELU, ReLU"}, False),
    ],
)
def test_activation_of_the_manifest(run, clean, model, facts, wrong):
    findings = run("wrong_activation", stores(clean, model, **facts))
    assert [each.modalities for each in findings] == ([("image", "text")] if wrong else [])


def test_truncated_texts_are_counted_by_manifest_or_words(run, clean):
    def text(**provenance):
        return {"text": cg.Embeddings(clean["text"], "text", provenance=provenance)}

    (finding,) = run("truncated_captions", text(truncated=30, n=400, encoder={"context_length": 32}))
    assert (finding.severity, finding.values["length"]) == ("warning", 32)
    assert "30 of 400 (7.5 ± 1.3%)" in finding.evidence
    assert run("truncated_captions", text(truncated=2))[0].severity == "note"
    assert run("truncated_captions", text(truncated=0)) == run("truncated_captions", clean) == []
    captions = np.array(["word " * (90 if k == 7 else 60) for k in range(400)], dtype=object)
    (finding,) = run("truncated_captions", {"text": cg.Embeddings(clean["text"], "text", metadata={"text": captions})})
    assert finding.values["rows"] == [7] and "by their words alone" in finding.evidence
