"""`list`: every name of the registries, each with its whole entry, as text and as JSON."""

import json
import re
from pathlib import Path

import pytest

from clip_geometry.cli.lists import LISTS, list_table
from clip_geometry.geometry import measures
from clip_geometry.search.checks import checks
from clip_geometry.search.repairs import repairs
from clip_geometry.steps import transforms


def names_in(cli, *arguments):
    assert cli("list", *arguments, "--json", "list.json").status == 0
    groups = json.loads(Path("list.json").read_text())["groups"]
    return [row[0].partition("(")[0] for group in groups for row in group["rows"] if row[0]]


def test_the_lists_have_the_names_of_the_registries(cli):
    assert set(names_in(cli, "transforms")) == set(transforms)
    assert set(names_in(cli, "repairs")) == set(repairs) and set(names_in(cli, "checks")) == set(checks)
    assert {"cifar100", "folder", "captions", "coco", "scenes"} <= set(names_in(cli, "datasets"))
    assert {"scenes-clip/fresh", "hf-hub:ORG/NAME", "mclip:shipped/scenes-multilingual", "ViT-B-32"} <= set(
        names_in(cli, "models")
    )


def test_measures_and_evaluators_have_a_line_for_each_family_with_its_variants(cli):
    for what in ("measures", "evaluators"):
        found = names_in(cli, what)
        mine = [each for each in measures.values() if bool(each.evaluator) == (what == "evaluators")]
        assert sorted(found) == sorted({re.split(r"[.[]", each.name)[0] for each in mine})
        words = cli("list", what).out.split()
        assert {variant for each in mine for variant in re.findall(r"\[.*?\]", each.name)} <= {*words}


def test_an_entry_is_whole(cli):
    for number, measure in enumerate(measures.values()):
        what = ("measures", "evaluators")[number % 2]  # which know the names of both
        (first, *_) = list_table(what, measure.name).more
        assert first.title == f"{measure.name}: {measure.title}"
        said = " ".join(first.heading)
        assert all(each in said for each in (measure.summary, measure.caveat, measure.formula, measure.reference))
    for what, name, found in (
        ("evaluators", "zero_shot[dot]", [f"zero_shot[dot].{each}" for each in ("top_1", "top_5", "mean_per_class")]),
        ("transforms", "whiten", ["whiten(k=none)"]),
        ("models", "ViT-B-32", ["ViT-B-32"]),
    ):
        assert [entry.title.partition(": ")[0] for entry in list_table(what, name).more] == found
    assert cli("list", "measures", "isoscore", "--json", "entry.json").status == 0
    (entry,) = json.loads(Path("entry.json").read_text())["more"]
    assert entry["title"] == "isoscore: IsoScore" and measures["isoscore"].formula in entry["heading"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["mesures"], "unknown list 'mesures'; did you mean 'measures'?"),
        (["measures", "gap"], "did you mean 'gap_shift_share' or 'modality_gap' or 'modality_gap[cosine]'?"),
        (["transforms", "whitn"], "unknown transform 'whitn'; did you mean 'whiten'"),
    ],
)
def test_an_unknown_name_has_near_ones(refused, arguments, sentence):
    assert sentence in refused("list", *arguments)


@pytest.mark.experiments
def test_a_config_is_listed_with_what_it_takes(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = cli("list", "configs").out.splitlines()
    at = next(k for k, line in enumerate(lines) if "tyshchuk2023/isotropy_coco500 " in line)
    assert lines[at].endswith("I1 and I2, and what they see, on real embeddings")
    assert lines[at + 1].strip() == "a minute on two CPU cores; needs $CLIP_GEOMETRY_DATA"
    entry = re.sub(r"\s+", " ", cli("list", "configs", "quickstart").out)
    assert entry.startswith("quickstart: What a small CLIP has learned") and "Expected: modality gap" in entry


@pytest.mark.parametrize("what", LISTS)
def test_lists_fit_the_terminal_and_keep_their_words(cli, monkeypatch, what):
    monkeypatch.setenv("COLUMNS", "80")
    narrow = cli("list", what).out
    monkeypatch.setenv("COLUMNS", "200")
    wide = cli("list", what).out
    assert "".join(narrow.split()) == "".join(wide.split()) and max(map(len, wide.splitlines())) <= 100
    assert all(len(line) <= 80 or " " not in line.strip() for line in narrow.splitlines())
