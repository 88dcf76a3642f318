import html
import re

import pytest

from clip_geometry_experiments.published.ledger import all_entries
from clip_geometry_experiments.published.tables import beside
from clip_geometry_experiments.report.page import Section, render_report

PROMPT = "low-resolution photo of a {_}"
ZERO_SHOT, ISOTROPY = "tyshchuk2023-zero_shot", "tyshchuk2023-isotropy"


def row(measure, value, **fields):
    shared = {"standard_error": 0.0041, "n": 10000, "d": 512, "pipeline": ["normalize"], "model": "scenes-clip/fresh"}
    return {"measure": measure, "value": value, **shared, "model_options": {"seed": 0}, **fields}


def accuracy(value, label="CLIP", measure="zero_shot.top_1", **fields):
    place = {"dataset": "cifar100", "split": "test", "at": {"row": label, "split": "test"}}
    return row(measure, value, **place | {"data_options": {"prompt": PROMPT}} | fields)


def cells_of(table, label):
    """The rows of a number, the following variants included."""
    return [cells for cells in table.rows if cells.label == label]


def test_the_paper_s_own_setup_needs_nothing_more():
    ((table),) = beside([accuracy(0.6309, model="open_clip:ViT-B-32-quickgelu/openai")], ZERO_SHOT)
    assert table.missing == {}
    assert table.rows[0].difference == "0.00 ✓" and table.rows[0].cause == ""


def test_settings_are_named_first_and_in_words():
    clip = {"model": "OpenAI CLIP ViT-B/16", "dataset": "coco500-clip-vit-b16", "n": 500}
    (table, _) = beside([row("isotropy_i1", 0.2378, at={"modality": "image"}, **clip)], ISOTROPY)
    assert table.rows[0].label == "CLIP, I1 of images"
    assert table.rows[0].cause == (
        "500 instead of 40,504 rows; CLIP ViT-B/16 instead of ViT-B/32; 500 COCO pairs instead of COCO 2014 val; "
        "published is along the rows of the eigenvector matrix"
    )


def test_updates_seeds_and_rows_come_before_model_and_data():
    at = {"classifier.seed": "all", "layer": "input", "of": "silhouette", "with": "isoscore", "sample": 100}
    shared = {"model": "sentence:all-MiniLM-L6-v2", "dataset": "wnli", "at": at, "pipeline": []}
    few = [row("classify.pearson", -0.9, updates=10, seeds=2, **shared)]
    table = beside(few, "mickus2024-glue")[-1]
    assert table.rows[0].label == "MiniLM, WNLI, Pearson"
    assert table.rows[0].cause == "10 instead of 250 updates; 2 instead of 5 seeds"


def test_every_difference_of_a_setup_has_words_and_every_label_is_readable():
    for entry in all_entries():
        unlike = set(entry.rule.same) or ({"setup"} if entry.rule.config else set())  # where nothing is named
        assert unlike <= set(entry.rule.differs), entry.published.path
        assert "_" not in entry.label, entry.label
        assert all(not text.endswith(".") and len(text) < 80 for text in entry.causes), entry.causes


def test_variants_follow_their_number_and_setups_and_notes_are_shared():
    same = {"dataset": "coco500", "at": {"modality": "image"}, "n": 500}
    rows = [
        row("isotropy_i1", 0.2324, **same),
        row("isotropy_i1[rows]", 0.805, **same),
        row("isotropy_i2", 0.0374, **same),
    ]
    table, captions = beside(rows, ISOTROPY)
    definition, published = cells_of(table, "CLIP, I1 of images")
    assert (definition.first, published.first) == (True, False)
    assert definition.how == "definition; normalize" and published.how == "rows, as published"  # of the same rows
    assert definition.difference == published.difference == "–"  # of an untrained model
    assert list(table.setups) == ["A"] and captions.setups is table.setups
    # what differs is said once for a setup, the cause of a variant each time
    assert definition.cause.startswith("500 instead of 40,504 rows; ")
    assert published.cause == "arbitrary where n < d"
    assert captions.title.startswith("Captions of figures 2 to 4") and captions.notes and not table.notes
    table, _ = beside([{**each, "model": "OpenAI CLIP ViT-B/16"} for each in rows], ISOTROPY)
    assert [cells.difference for cells in cells_of(table, "CLIP, I1 of images")] == ["−0.5976", "−0.0250"]


def test_a_variant_that_was_not_published_stands_aside_in_the_row_of_the_one_that_was():
    rows = [accuracy(0.5), accuracy(0.4, measure="zero_shot[dot].top_1")]
    (cells,) = beside(rows, ZERO_SHOT)[0].rows
    assert cells.ours == "50.00 ± 0.41" and cells.how == "cosine, as published; normalize (dot product 40.00 ± 0.41)"
    # the published one follows it in the ledger
    name = "PCA-450 on COCO"
    rows = [accuracy(0.3, name), accuracy(0.2, name, "zero_shot[dot].top_1")]
    (cells,) = beside(rows, ZERO_SHOT)[0].rows
    assert cells.ours == "20.00 ± 0.41" and cells.how.endswith("(cosine 30.00 ± 0.41)")
    # alone, or of other rows, it has a row
    (cells,) = beside([accuracy(0.3, name)], ZERO_SHOT)[0].rows
    assert cells.ours == "30.00 ± 0.41"
    assert len(beside([rows[1], accuracy(0.3, name, model="other")], ZERO_SHOT)[0].rows) == 2


def test_an_accuracy_among_other_classes_has_no_difference():
    clip = {"model": "open_clip:ViT-B-32-quickgelu/openai"}
    (table,) = beside([accuracy(0.621) | clip], ZERO_SHOT)
    assert cells_of(table, "CLIP")[0].difference == "−0.99"
    (table,) = beside([accuracy(0.888) | clip | {"dataset": "cifar10"}], ZERO_SHOT)
    assert cells_of(table, "CLIP")[0].difference == "–"
    assert cells_of(table, "CLIP")[0].cause == "CIFAR-10 instead of CIFAR-100"


def test_the_report_of_a_run_has_only_what_its_rows_stand_beside():
    (table,) = beside([accuracy(0.01), accuracy(0.02, "PCA-90 on text prompts")], ZERO_SHOT)
    assert [cells.label for cells in table.rows] == ["CLIP", "PCA-90 on the prompts"]
    assert beside([accuracy(0.01)], "quickstart") == []
    assert beside([accuracy(None)], ZERO_SHOT) == []


def test_seeds_and_places_are_told():
    seeds = [accuracy(0.6 + k / 100, model_options={"seed": k}) for k in range(3)]
    for each in seeds:
        each["at"] = {**each["at"], "batch": 64}
    (cells,) = beside(seeds, ZERO_SHOT)[0].rows
    assert cells.ours == "61.0 ± 1.0"
    assert cells.how == "cosine, as published; normalize; batch 64; mean ± standard deviation of 3 seeds"
    assert beside(seeds, ZERO_SHOT)[0].setups == {"A": f"a small untrained CLIP on CIFAR-100 (prompt {PROMPT}), test"}


def test_a_null_value_has_the_unit_of_its_number():
    (cells,) = beside([accuracy(0.888, null_value=0.096)], ZERO_SHOT)[0].rows
    assert cells.ours == "88.80 ± 0.41" and cells.how.endswith("; null 9.60")
    (cells,) = beside([accuracy(0.888, null_pooled=0.096)], ZERO_SHOT)[0].rows
    assert cells.how.endswith("; pooled null 9.60")


def test_what_the_rows_of_a_data_set_do_not_say_is_in_the_legend():
    (table,) = beside([accuracy(0.888, dataset="cifar10", data_options={})], ZERO_SHOT)
    assert 'prompts "a {name}" with the names of LVIS' in table.setups["A"]
    assert "LVIS" not in table.rows[0].cause


def test_none_of_n_has_a_limit():
    (cells,) = beside([accuracy(0.0, n=140, standard_error=0.0)], ZERO_SHOT)[0].rows
    assert cells.ours == "0 (95% limit 2.1)"


@pytest.mark.parametrize("places", [3, 30])
def test_many_setups_have_letters(places):
    rows = [accuracy(0.01, model=f"model-{k}") for k in range(places)]
    (table,) = beside(rows, ZERO_SHOT)
    assert len(table.setups) == places and list(table.setups)[:2] == ["A", "B"]
    assert ("A2" in table.setups) == (places > 26)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        # which have other prompts
        (
            {"dataset": "scenes", "data_options": {}, "n": 64},
            "64 instead of 10,000 images; drawn scenes instead of CIFAR-100",
        ),
        ({"n": 64}, "64 instead of 10,000 images"),
        (
            {"n": 64, "model": "scenes-clip/fresh"},
            "64 instead of 10,000 images; a small untrained CLIP instead of ViT-B/32",
        ),
        ({"data_options": {"prompt": "low-resolution photo of a {}"}}, "the prompt: no underscores"),
        ({"data_options": {"prompt": "a {}"}}, "the prompt: a {}"),
        ({"fitted_on": "scenes/train:pooled"}, "a map fitted on drawn scenes instead of COCO"),
    ],
)
def test_what_differs_is_named_and_not_what_follows_from_it(changes, words):
    ((table),) = beside([accuracy(0.5, **{"model": "open_clip:ViT-B-32-quickgelu/openai", **changes})], ZERO_SHOT)
    assert table.rows[0].cause == words


def test_the_report_shows_causes_notes_needs_and_one_legend():
    rows = [accuracy(0.5, command="clip-geometry run x"), accuracy(0.4, "PCA-90 on text prompts")]
    shown = beside(rows, ZERO_SHOT)
    section = Section(facts={}, rows=[], figures=[], beside=shown)
    page = render_report(title="t", intro="", sections=[section], explanations={})
    text = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())
    for words in (
        "PCA-90 on the prompts 62.6",
        "a small untrained CLIP instead of ViT-B/32; the notebook prints it for the training images",
        "keep the underscores of the class names",
        "The paper's own setup was not run here; it needs OpenAI's ViT-B/32",
        "A : a small untrained CLIP (seed 0) on CIFAR-100",
    ):
        assert words in text, words
    assert text.count("Setups") == 1
