import json
import re

import numpy as np
import pytest

from clip_geometry.cli.lists import LISTS, list_table
from clip_geometry.geometry import by_group, measures
from clip_geometry.search.repairs import Known, make_repair
from clip_geometry.transforms import Pipeline, transforms


def test_list_measures_has_a_line_for_each_with_its_variants(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("list", "measures").out.splitlines()
    words = [word for line in lines for word in line.split()]
    for measure in by_group(all=True):
        base, bracket, variant = measure.name.partition("[")
        assert sum(line.startswith(f"  {base} ") for line in lines) == 1
        assert not bracket or f"[{variant}" in words
        assert measure.group in lines
    assert {measure.evaluator for measure in measures.values()}.isdisjoint(words)
    numbers = cli("list", "evaluators").out.split()
    assert {str(each.evaluator).partition("[")[0] for each in measures.values() if each.evaluator} <= {*numbers}


def test_list_transforms_says_what_no_brackets_mean(cli):
    for name in ("conceptor", "center"):
        words = re.sub(r"\s+", " ", cli("list", "transforms", name).out)
        assert "one set needs no brackets; without them, it is fitted on each of several sets by itself, which" in words


def test_list_measures_name_is_the_whole_entry(cli):
    for number, measure in enumerate(measures.values()):
        what = ("measures", "evaluators")[number % 2]  # which know the names of both
        plain = re.sub(r"\s+", " ", cli("list", what, measure.name).out)
        assert plain.startswith(f"{measure.name}: {measure.title} ")
        for words in (measure.summary, measure.caveat, measure.formula, measure.reference):
            assert re.sub(r"\s+", " ", words) in plain
    for what, name, found in (
        ("measures", "isoscore", ["isoscore"]),
        (
            "evaluators",
            "zero_shot[dot]",
            [f"zero_shot[dot].{each}" for each in ("top_1", "top_5", "mean_per_class")],
        ),
        ("transforms", "whiten", ["whiten(k=none)"]),
        ("datasets", "coco", ["coco"]),
        ("models", "ViT-B-32", ["ViT-B-32"]),
    ):
        assert [entry.title.partition(": ")[0] for entry in list_table(what, name).more] == found


def test_json_has_the_table(cli, tmp_path):
    assert cli("list", "transforms", "--json", tmp_path / "index.json").status == 0
    found = json.loads((tmp_path / "index.json").read_text())
    assert [column["name"] for column in found["columns"]] == ["transform", "summary"]
    assert {row[0].partition("(")[0] for group in found["groups"] for row in group["rows"]} == set(transforms)
    assert cli("list", "measures", "isoscore", "--json", tmp_path / "entry.json").status == 0
    (entry,) = json.loads((tmp_path / "entry.json").read_text())["more"]
    assert entry["title"] == "isoscore: IsoScore" and measures["isoscore"].formula in entry["heading"]


def test_an_unknown_name_has_three_near_ones(refused):
    near = "'isoscore' or 'isoscore[unbiased]' or 'isoscore[package]'? (clip-geometry list measures names all)"
    assert refused("list", "measures", "isoscor") == f"unknown measure 'isoscor'; did you mean {near}"
    assert "did you mean 'gap_shift_share' or 'modality_gap' or 'modality_gap[cosine]'?" in refused(
        "list", "measures", "gap"
    )
    assert "unknown transform 'whitn'; did you mean 'whiten'" in refused("list", "transforms", "whitn")


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("transforms", list(transforms)),
        ("repairs", ["posterior[centered]", "rrf"]),
        ("checks", ["shifted_pairs"]),
        ("datasets", ["cifar100", "folder", "captions", "coco", "scenes"]),
        pytest.param("experiments", ["geometry"], marks=pytest.mark.experiments),
        pytest.param(
            "configs",
            ["quickstart", "tyshchuk2023/isotropy", "On Isotropy of Multimodal Embeddings"],
            marks=pytest.mark.experiments,
        ),
        ("models", ["open_clip:", "hf-clip:", "scenes-clip/fresh", "ViT-B-32"]),
    ],
)
def test_the_other_lists(cli, what, names):
    outcome = cli("list", what)
    assert outcome.status == 0
    for name in names:
        assert name in outcome.out


@pytest.mark.experiments
def test_a_config_is_listed_with_what_it_takes(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = cli("list", "configs").out.splitlines()
    at = next(k for k, line in enumerate(lines) if "tyshchuk2023/isotropy_coco500 " in line)
    assert lines[at].endswith("I1 and I2, and what they see, on real embeddings")
    assert lines[at + 1].strip() == "a minute on two CPU cores; needs $CLIP_GEOMETRY_DATA"
    entry = re.sub(r"\s+", " ", cli("list", "configs", "quickstart").out)
    assert entry.startswith("quickstart: What a small CLIP has learned")
    for word in ("What it shows: what a CLIP learns", "Time: ", "Expected: modality gap"):
        assert word in entry


LIGHT = [
    ["--help"],
    ["measure", "--help"],
    ["embed", "--help"],
    *(["list", what] for what in LISTS if what != "models"),
    ["list", "measures", "isoscore"],
    pytest.param(["list", "experiments", "geometry"], marks=pytest.mark.experiments),
    pytest.param(["list", "configs"], marks=pytest.mark.experiments),
    ["list", "mesures"],
    ["measure", "missing.npy"],
    ["measure", "empty.json", "--measures", "isoscor"],
    ["measure", "empty.json", "--pipeline", "centre"],
    ["fit", "centre", "empty.json", "-o", "map.safetensors"],
    ["fit", "center", "missing.npy", "-o", "map.safetensors"],
    ["diagnose", "empty.json", "--repairs", "zscor"],
    ["explore", "nowhere.npy", "-o", "e.html"],
    ["explore", "empty.json", "-o", "e.html", "--repairs", "center,whitn(3)"],
    ["ship", "map.safetensors", "-o", "new", "--to", "fais"],
    ["ship", "missing.safetensors", "-o", "new", "--to", "numpy"],
    ["ship", "map.safetensors", "-o", ".", "--to", "numpy"],
    ["ship", "map.safetensors", "rows.npy", "-o", "new", "--to", "faiss"],
    ["ship", "repair.safetensors", "rows.npy", "-o", "new", "--to", "faiss"],
    ["run", "missing.yaml"],
    ["run", "unknown.yaml"],
]


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_lists_help_and_wrong_names_load_no_torch(arguments, tmp_path, fresh_process):
    (tmp_path / "unknown.yaml").write_text("experiment: isotrpy")
    (tmp_path / "empty.json").write_text("[]")
    x = {name: np.random.default_rng(0).normal(size=(30, 6)) for name in ("image", "text")}
    Pipeline("center[each]").fit(x).save(tmp_path / "map.safetensors")
    make_repair("zscore").fit(Known(x)).save(tmp_path / "repair.safetensors")
    np.save(tmp_path / "rows.npy", np.ones((30, 5)))
    outcome, imported = fresh_process(*arguments, folder=tmp_path)
    assert not {"torch", "sklearn"} & {*imported}
    fine = "--help" in arguments or (arguments[0] == "list" and arguments[1] != "mesures")
    assert outcome.status == (0 if fine else 2)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("experiment: template", ["experiment=geometry"]),
        ("experiment: template\nsmoke: {experiment: geometry}", ["--smoke"]),
        ("sweep: {experiment: [geometry, isotropy]}\nexperiment: template", []),
    ],
)
def test_an_experiment_that_is_replaced_may_have_any_name(cli, tmp_path, text, arguments):
    (tmp_path / "c.yaml").write_text(text)
    assert "template" not in cli("run", tmp_path / "c.yaml", *arguments).err


@pytest.mark.parametrize("what", LISTS)
@pytest.mark.parametrize("width", [60, 80])
def test_lists_fit_the_terminal_and_keep_their_words(cli, monkeypatch, what, width):
    monkeypatch.setenv("COLUMNS", str(width))
    narrow = cli("list", what).out
    monkeypatch.setenv("COLUMNS", "200")
    wide = cli("list", what).out
    assert narrow.split() == wide.split()
    assert max(map(len, wide.splitlines())) <= 100
    assert all(len(line) <= width or " " not in line.strip() for line in narrow.splitlines())
    assert all(line == line.rstrip() for line in narrow.splitlines())
