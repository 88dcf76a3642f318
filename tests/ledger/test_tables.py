from pathlib import Path

import pytest

from clip_geometry.ledger import has_ledger, papers, published, read_recorded
from clip_geometry.ledger.tables import beside, reproduction_page

ROOT = Path(__file__).parents[2]
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


def test_the_page_in_docs_is_what_was_recorded():
    """After recording a run or changing the ledger: python scripts/build_docs.py."""
    page = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    assert page == reproduction_page(read_recorded(ROOT / "docs/reproduction"))


def test_a_line_has_published_ours_difference_setup_and_cause():
    recorded = accuracy(0.0123, command="clip-geometry run x.yaml", date="2026-01-02", version="0.1.0")
    page = reproduction_page({ZERO_SHOT: [recorded]})
    line = "| CLIP | 63.09 | 1.23 ± 0.41 | – | cosine, as published; normalize | 10000 × 512 | A | model; 1 |"
    assert line in page.splitlines()
    setup = f"scenes-clip/fresh (seed 0) on cifar100 (prompt {PROMPT}), test; `clip-geometry run x.yaml`; 2026-01-02,"
    assert f"**A**: {setup}" in " ".join(page.split())
    assert '(1) The authors\' prompts keep the underscores of the class names ("aquarium_fish")' in page
    assert "1 beside ours with another model or other data" in " ".join(page.split())


def test_what_nobody_ran_says_what_it_needs():
    page = " ".join(reproduction_page({}).split())
    assert "| CLIP | 63.09 | – | – | | | | not run here |" in page
    assert "The paper's own setup was not run here; it needs OpenAI's ViT-B/32" in page
    assert "`clip-geometry run configs/tyshchuk2023/zero_shot.yaml model=open_clip:ViT-B-32-quickgelu/openai" in page
    assert "| tsne_perplexity · image | 5 | – | – | | | | 1 |" in page and "(1) A setting, not a result" in page


def test_the_paper_s_own_setup_needs_nothing_more():
    ((table),) = beside([accuracy(0.6309, model="open_clip:ViT-B-32-quickgelu/openai")], ZERO_SHOT)
    assert table.missing == []
    assert table.rows[0].difference == "0.00 ✓" and table.rows[0].cause == "1"


def test_every_number_of_a_paper_with_a_ledger_is_on_the_page_and_the_others_are_named():
    page = reproduction_page({})
    told = [paper for paper in papers() if has_ledger(paper)]
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) == sum(len(published(paper)) for paper in told)
    assert page.count("there is no ledger for this paper yet") == len(papers()) - len(told)
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith("|"))


def test_variants_follow_their_number_and_setups_and_causes_are_shared():
    same = {"dataset": "coco500", "at": {"modality": "image"}, "n": 500}
    rows = [
        row("isotropy_i1", 0.2324, **same),
        row("isotropy_i1[rows]", 0.805, **same),
        row("isotropy_i2", 0.0374, **same),
    ]
    table, captions = beside(rows, ISOTROPY)
    definition, published = cells_of(table, "CLIP · i1_image")
    assert (definition.first, published.first) == (True, False)
    assert definition.how == "definition; normalize" and published.how == "rows, as published"  # of the same rows
    assert definition.difference == published.difference == "–"  # of an untrained model
    assert list(table.setups) == ["A"] and definition.cause == "model, data; 1" != published.cause
    assert captions.title.startswith("Captions of figures 2 to 4")
    table, _ = beside([{**each, "model": "OpenAI CLIP ViT-B/16"} for each in rows], ISOTROPY)
    assert [cells.difference for cells in cells_of(table, "CLIP · i1_image")] == ["−0.5976", "−0.0250"]


def test_an_accuracy_among_other_classes_has_no_difference():
    clip = {"model": "open_clip:ViT-B-32-quickgelu/openai"}
    (table,) = beside([accuracy(0.621) | clip], ZERO_SHOT)
    assert cells_of(table, "CLIP")[0].difference == "−0.99"
    (table,) = beside([accuracy(0.888) | clip | {"dataset": "cifar10"}], ZERO_SHOT)
    assert cells_of(table, "CLIP")[0].difference == "–" and "data" in cells_of(table, "CLIP")[0].cause


def test_the_report_of_a_run_has_only_what_its_rows_stand_beside():
    (table,) = beside([accuracy(0.01), accuracy(0.02, "PCA-90 on text prompts")], ZERO_SHOT)
    assert [cells.label for cells in table.rows] == ["CLIP", "PCA-90 on text prompts"]
    assert beside([accuracy(0.01)], "quickstart") == []
    assert beside([accuracy(None)], ZERO_SHOT) == []


def test_seeds_and_places_are_told():
    seeds = [accuracy(0.6 + k / 100, model_options={"seed": k}) for k in range(3)]
    for each in seeds:
        each["at"] = {**each["at"], "batch": 64}
    (cells,) = beside(seeds, ZERO_SHOT)[0].rows
    assert cells.ours == "61.0 ± 1.0"
    assert cells.how == "cosine, as published; normalize; batch 64; mean of 3 seeds ± their standard deviation"
    assert beside(seeds, ZERO_SHOT)[0].setups == {"A": f"scenes-clip/fresh on cifar100 (prompt {PROMPT}), test"}


def test_a_bar_does_not_break_the_table():
    page = reproduction_page({ZERO_SHOT: [accuracy(0.01, fitted_on="a|b")]})
    assert r"fitted on a\|b" in page


@pytest.mark.parametrize("places", [3, 30])
def test_many_setups_have_letters(places):
    rows = [accuracy(0.01, model=f"model-{k}") for k in range(places)]
    (table,) = beside(rows, ZERO_SHOT)
    assert len(table.setups) == places and list(table.setups)[:2] == ["A", "B"]
    assert ("A2" in table.setups) == (places > 26)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dataset": "scenes", "data_options": {}, "n": 64}, "data"),  # which have other prompts and another number
        ({"n": 64}, "number of rows"),
        ({"n": 64, "model": "scenes-clip/fresh"}, "model"),
        ({"data_options": {"prompt": "a {}"}}, "prompt"),
    ],
)
def test_what_differs_is_named_and_not_what_follows_from_it(changes, words):
    ((table),) = beside([accuracy(0.5, **{"model": "open_clip:ViT-B-32-quickgelu/openai", **changes})], ZERO_SHOT)
    assert table.rows[0].cause.split(";")[0] == words
