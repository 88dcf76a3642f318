"""Checks of single rows: invalid, not of length 1, of low precision, copies."""

import numpy as np
import pytest

import clip_geometry as cg
from support.clip_like import clip_like, unit


def test_invalid_rows_are_counted_and_named(run, clean):
    clean["image"][[3, 70]] = 0
    clean["image"][9, 5] = np.nan
    clean["text"][200, 1] = np.inf
    image, text = run("invalid_rows", clean)
    assert (image.severity, image.values["rows"], text.values["rows"]) == ("error", [3, 9, 70], [200])
    assert image.evidence == "3 of 400 (0.75 ± 0.43%) image rows are zero or hold NaN or infinity; the first is row 3."


def test_other_checks_leave_invalid_rows_out(run, clean):
    clean["image"][[3, 70]] = 0
    clean["text"][9, 5] = np.nan
    for name in ("mixed_models", "shuffled_pairs", "shifted_pairs", "low_precision", "hubs", "near_duplicates"):
        assert run(name, clean) == []
    assert run("dead_dimensions", clean) == []


def test_lengths_that_vary(run, clean):
    lengths = np.random.default_rng(0).uniform(0.5, 1.5, (400, 1)).astype(np.float32)
    (finding,) = run("not_unit", {**clean, "text": clean["text"] * lengths})
    assert (finding.severity, finding.modalities) == ("warning", ("text",))
    # by inner product long rows win: with such lengths most queries have another first row
    assert finding.values["changed"] > 0.5 * finding.values["queries"]
    assert finding.values["quantiles"][1] == pytest.approx(np.median(lengths), abs=0.01)


def test_rows_that_are_partly_normalized_are_an_error(run, clean):
    clean["image"][100:140] *= 9
    (finding,) = run("not_unit", clean)
    assert (finding.severity, finding.values["count"], finding.values["partly"]) == ("error", 40, True)


def bfloat16(x):
    return (x.view(np.uint32) + 0x8000 & 0xFFFF0000).astype(np.uint32).view(np.float32)


def int8(x):
    step = np.abs(x).max() / 127
    return (np.round(x / step) * step).astype(np.float32)


FORMATS = {"float16": lambda x: x.astype(np.float16).astype(np.float32), "bfloat16": bfloat16, "int8": int8}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("scaled", [False, True])
def test_formats_are_told_by_the_values(run, name, scaled):
    x = FORMATS[name](clip_like(300, d=256)["image"])
    (finding,) = run("low_precision", {"image": unit(x) if scaled else x})
    assert finding.values["format"] == name
    assert finding.severity == ("note" if name == "float16" else "warning")
    assert 0 < finding.values["cosine_error"] < 0.01


@pytest.mark.parametrize(("scaled", "n"), [(False, 150), (True, 600)])
def test_rounding_by_dimension_is_told(run, scaled, n):
    """As FAISS's SQ8 decodes: the middle of one of 255 steps of each column."""
    x = clip_like(n, d=256)["image"]
    low, span = x.min(0), np.ptp(x, axis=0)
    decoded = (low + (np.floor((x - low) / span * 255).clip(0, 255) + 0.5) / 255 * span).astype(np.float32)
    (finding,) = run("low_precision", {"image": unit(decoded) if scaled else decoded})
    assert (finding.severity, finding.values["format"], finding.values["exact"]) == (
        "warning", "int8 by dimension", not scaled
    )  # fmt: skip
    assert "by dimension" in finding.evidence


def test_rounding_error_of_a_cosine_is_that_of_the_formats(run):
    """int8 of one step for all: each product has 2 d errors of step²/12, of rows of length 1: σ = step √(2/12)."""
    x = clip_like(300, d=256)["image"]
    (finding,) = run("low_precision", {"image": int8(x)})
    step = np.abs(x).max() / 127
    # the rows are not independent of each other: a tenth
    assert finding.values["cosine_error"] == pytest.approx(step * np.sqrt(2 / 12), rel=0.1)


def test_copies_of_pairs(run, clean):
    rows, of = np.array([5, 90, 91, 300]), np.array([4, 200, 200, 12])
    for x in clean.values():
        x[rows] = x[of]
    (finding,) = run("exact_duplicates", clean)
    assert (finding.severity, finding.modalities) == ("warning", ("image", "text"))
    assert (finding.values["count"], finding.values["groups"], finding.values["largest"]) == (4, 3, 3)
    # the first of equal rows is the original: row 300 equals row 12, row 200 now equals row 90
    assert dict(zip(finding.values["rows"], finding.values["of"], strict=True)) == {5: 4, 91: 90, 200: 90, 300: 12}
    assert finding.evidence.startswith("4 of 400 (1.00 ± 0.50%) pairs are exact copies of another pair")


@pytest.mark.parametrize("block", [7, 400])
def test_rows_that_equal_their_partners(run, clean, monkeypatch, block):
    """In any block of pairs."""
    monkeypatch.setattr("clip_geometry.search.checks.copies.BLOCK", block)
    rows = [3, 50, 399]
    clean["image"][rows] = clean["text"][rows]
    (finding,) = run("exact_duplicates", clean)
    assert (finding.severity, finding.values["rows"], finding.values["of"]) == ("error", rows, rows)


def test_equal_texts_explain_equal_rows(run, clean):
    clean["text"][10:13] = clean["text"][9]
    texts = np.array([f"caption {max(0, k - 12) if 9 <= k <= 12 else k + 500}" for k in range(400)], dtype=object)
    assert run("exact_duplicates", {"text": cg.Embeddings(clean["text"], "text", metadata={"text": texts})}) == []
    (finding,) = run("exact_duplicates", {"text": clean["text"]})
    assert (finding.severity, finding.values["rows"]) == ("warning", [10, 11, 12])


def test_near_copies_of_pairs_and_rows(run, clean):
    generator = np.random.default_rng(0)
    assert run("near_duplicates", clean) == run("near_duplicates", {"image": clean["image"]}) == []
    for x in clean.values():
        x[:12] = x[100:112] + 2e-4 * generator.normal(size=(12, 64)).astype(np.float32)
    for sets in (clean, {"image": clean["image"]}):
        (finding,) = run("near_duplicates", sets)
        assert sorted(finding.values["rows"]) == [*range(12), *range(100, 112)]
        near = dict(zip(finding.values["rows"], finding.values["near"], strict=True))
        assert near[3] == 103 and near[103] == 3
        assert finding.values["expected"] < 0.24 and finding.values["p_value"] < 1e-4


def test_leakage_of_pairs(run, clean):
    other = clip_like(300, seed=8)
    assert run("leakage", clean, other) == []
    noise = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
    for name, x in other.items():
        x[40:46] = clean[name][10:16]
        x[90:96] = clean[name][50:56] + 2e-4 * noise
    (finding,) = run("leakage", clean, other)
    assert finding.values["rows"] == [*range(10, 16), *range(50, 56)]
    assert (finding.severity, finding.values["copies"], finding.values["n"]) == ("error", 6, 400)


def test_leakage_of_captions_alone_is_a_note_and_of_a_single_modality_an_error(run, clean):
    other = clip_like(300, seed=8)
    other["text"][40:46] = clean["text"][10:16]
    (finding,) = run("leakage", clean, other)
    assert (finding.severity, finding.modalities, finding.values["rows"]) == ("note", ("text",), list(range(10, 16)))
    (finding,) = run("leakage", {"text": clean["text"]}, other)
    assert finding.severity == "error"


def test_equal_lengths_and_raw_stores_are_notes(run, clean):
    (finding,) = run("not_unit", {"image": 7 * clean["image"]})
    assert (finding.severity, finding.values["same"], finding.values["changed"]) == ("note", True, 0)
    lengths = np.random.default_rng(0).uniform(5, 15, (400, 1))
    store = cg.Embeddings(clean["image"] * lengths, "image", provenance={"key": "0123"})
    (finding,) = run("not_unit", {"image": store})
    assert finding.severity == "note" and "raw rows by design" in finding.remedy


def test_one_caption_of_several_images_is_a_note(run, clean):
    clean["text"][10:30] = clean["text"][9]
    (finding,) = run("exact_duplicates", clean)
    assert (finding.severity, finding.modalities, finding.values["count"]) == ("note", ("text",), 20)
