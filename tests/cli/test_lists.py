import re
import subprocess
import sys

import pytest

from clip_geometry.cli.early import FILE
from clip_geometry.cli.lists import LISTS, shipped_lists
from clip_geometry.geometry import measures
from clip_geometry.transforms import transforms


def test_list_measures_says_what_each_means(cli):
    outcome = cli("list", "measures")
    for name, measure in measures.items():
        assert f"{name}: {measure.title}" in outcome.out
    plain = re.sub(r"\s+", " ", outcome.out)
    for measure in measures.values():
        assert measure.summary in plain and measure.caveat in plain and measure.reference in plain


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
