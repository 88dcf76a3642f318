import re
import subprocess
import sys

import numpy as np
import pytest

from clip_geometry.cli.comparison import columns_of, compare
from clip_geometry.cli.early import FILE
from clip_geometry.cli.lists import LISTS, shipped_lists
from clip_geometry.cli.tables import value_and_error
from clip_geometry.geometry import by_group, measures
from clip_geometry.transforms import transforms


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


def test_list_measures_name_is_the_whole_entry(cli):
    for measure in measures.values():
        for what in ("measures", "evaluators"):
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
        ("transforms", "whiten", ["whiten(k)"]),
        ("datasets", "coco", ["coco"]),
        ("models", "ViT-B-32", ["ViT-B-32"]),
    ):
        out = cli("list", what, name).out
        assert [line.partition(": ")[0] for line in out.splitlines() if line[:1].strip()] == found


def test_an_unknown_name_has_three_near_ones(refused):
    near = "'isoscore' or 'isoscore[unbiased]' or 'isoscore[package]'? (clip-geometry list measures names all)"
    assert refused("list", "measures", "isoscor") == f"unknown measure 'isoscor'; did you mean {near}"
    assert "did you mean 'modality_gap' or 'relative_modality_gap'?" in refused("list", "measures", "gap")
    assert "unknown transform 'whitn'; did you mean 'whiten(k)'" in refused("list", "transforms", "whitn")


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("transforms", list(transforms)),
        ("datasets", ["cifar100", "folder", "captions", "coco", "scenes"]),
        ("experiments", ["geometry"]),
        ("models", ["open_clip:", "hf-clip:", "scenes-clip/fresh", "ViT-B-32"]),
    ],
)
def test_the_other_lists(cli, what, names):
    outcome = cli("list", what)
    assert outcome.status == 0
    for name in names:
        assert name in outcome.out


def test_the_shipped_lists_are_those_of_the_registries():
    """After a change of a registry: python scripts/build_docs.py."""
    assert FILE.read_text(encoding="utf-8") == shipped_lists()


LIGHT = [
    ["--help"],
    ["measure", "--help"],
    ["embed", "--help"],
    *(["list", what] for what in LISTS if what != "models"),
    ["list", "mesures"],
    ["measure", "missing.npy"],
    ["measure", "lists.json", "--measures", "isoscor"],
    ["measure", "lists.json", "--pipeline", "centre"],
    ["fit", "centre", "lists.json", "-o", "map.safetensors"],
    ["fit", "center", "missing.npy", "-o", "map.safetensors"],
    ["run", "missing.yaml"],
    ["run", "unknown.yaml"],
]


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_lists_help_and_wrong_names_load_no_torch(arguments, tmp_path):
    (tmp_path / "unknown.yaml").write_text("experiment: isotrpy")
    (tmp_path / "lists.json").write_text("[]")
    code = """import sys
from clip_geometry.cli import main
try:
    main()
finally:
    print({"torch", "sklearn"} & {*sys.modules})
"""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.rstrip().endswith("set()")
    assert done.returncode == (0 if ("list" in arguments[:1] and arguments[1] in LISTS) or "--help" in arguments else 2)


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


@pytest.fixture
def measured(cli, tmp_path):
    def run(name, rows, *options):
        np.save(tmp_path / f"{name}.npy", rows)
        outcome = cli("measure", tmp_path / f"{name}.npy", "--json", tmp_path / f"{name}.jsonl", *options)
        assert outcome.status == 0, outcome.err
        return tmp_path / f"{name}.jsonl"

    return run


X = np.random.default_rng(0).normal(size=(40, 6)) + 1


def lines_of(*files):
    return {(line.measure, line.place): line for line in compare([c for file in files for c in columns_of(file)])}


def test_equal_conditions_are_compared_without_remark(measured):
    lines = lines_of(measured("a", X), measured("b", X + 1))
    assert all(line.remarks == () for line in lines.values())
    a, b = (row["value"] for row in lines["average_cosine", "rows"].records if row)
    assert 0 < a < b


@pytest.mark.parametrize(
    ("rows", "options", "remark"),
    [
        (X[:30], [], "different n: 40, 30"),
        (X[:, :5], [], "different d: 6, 5"),
        (X, ["--raw"], "different pipeline: normalize, raw"),
        (X.astype(np.float32), [], "different precision: float64, float32"),
    ],
)
def test_what_may_not_be_compared_is_marked(measured, rows, options, remark):
    lines = lines_of(measured("a", X), measured("b", rows, *options))
    assert lines["isoscore", "rows"].remarks == (remark,)


def test_different_conventions_are_marked(measured):
    a = measured("a", X, "--measures", "isotropy_i1")
    b = measured("b", X, "--measures", "isotropy_i1[canonical]")
    lines = lines_of(a, b)
    assert lines["isotropy_i1", "rows"].records[1] is None
    assert "different convention" in lines["isotropy_i1", "rows"].remarks[0]


def test_the_table_names_the_runs(cli, measured):
    a, b = measured("a", X), measured("b", X[:30])
    outcome = cli("compare", a, b)
    assert outcome.status == 0
    assert f"A = {a}" in outcome.out and f"B = {b}" in outcome.out
    assert "different n: 40, 30" in outcome.out


def test_a_reason_that_all_lines_share_is_said_once(cli, measured):
    out = cli("compare", measured("a", X), measured("b", X, "--raw")).out
    assert out.count("different pipeline: normalize, raw") == 1
    assert "no line may be compared: different pipeline: normalize, raw\nmeasure " in out
    assert " may not be compared" not in out


def test_a_reason_of_some_lines_stands_beside_them(cli, measured):
    a = measured("a", X, "--measures", "isoscore,isotropy_i1,average_cosine", "--raw")
    b = measured("b", X, "--measures", "isoscore,isotropy_i1[canonical],average_cosine")
    out = cli("compare", a, b).out
    assert "no line may be compared: different pipeline: raw, normalize\n" in out
    (line,) = [line for line in out.splitlines() if line.startswith("isotropy_i1 ")]
    assert line.endswith("different convention: another variant of this measure stands in another run")
    (line,) = [line for line in out.splitlines() if line.startswith("isoscore ")]
    assert "different" not in line


def test_runs_that_may_be_compared_have_no_column_for_reasons(cli, measured):
    out = cli("compare", measured("a", X), measured("b", X + 1)).out
    (heads,) = [line for line in out.splitlines() if line.startswith("measure ")]
    assert heads.split() == ["measure", "set", "A", "B"]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_compare_shows_standard_errors_and_cuts_nothing(cli, measured, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    files = measured("a", X), measured("b", X[:30])
    out = cli("compare", *files).out
    lines = out.splitlines()
    for line in compare([c for file in files for c in columns_of(file)]):
        values = [word for row in line.records if row is not None for word in value_and_error(row).split()]
        cells = [line.place, *values]
        assert any(each.startswith(line.measure[:8]) and each.split()[1 : 1 + len(cells)] == cells for each in lines)
    assert sum("±" in line for line in lines) >= 10
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("what", LISTS)
@pytest.mark.parametrize("width", [40, 80])
def test_lists_fit_the_terminal_and_keep_their_words(cli, monkeypatch, what, width):
    monkeypatch.setenv("COLUMNS", str(width))
    narrow = cli("list", what).out
    monkeypatch.setenv("COLUMNS", "200")
    wide = cli("list", what).out
    assert narrow.split() == wide.split()
    assert max(map(len, wide.splitlines())) <= 100
    assert all(len(line) <= width or " " not in line.strip() for line in narrow.splitlines())
    assert all(line == line.rstrip() for line in narrow.splitlines())
