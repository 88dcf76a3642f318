"""`compare`: what the function takes, as text and as files."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest

import clip_geometry as cg

CENTERED = "normalize,center[each],normalize"


@pytest.fixture
def folder(tmp_path):
    """Two files of aligned rows, one labels file, and the records of the first."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 6)) + 1
    np.save(tmp_path / "image.npy", x)
    np.save(tmp_path / "text.npy", x + rng.normal(size=(60, 6)) - 2)
    (tmp_path / "labels.txt").write_text("\n".join("ab"[k % 2] for k in range(60)))
    cg.measure(tmp_path / "image.npy").to_json(tmp_path / "a.jsonl")
    (tmp_path / "run").mkdir()
    cg.measure(tmp_path / "text.npy").to_json(tmp_path / "run" / "results.jsonl")
    return tmp_path


@pytest.mark.parametrize(
    ("paths", "options"),
    [
        (["image.npy", "text.npy"], {}),
        (["."], {"pipelines": ["raw", CENTERED], "measures": "modality_gap,silhouette", "labels": "labels.txt"}),
        (["image.npy", "text.npy", "image.npy"], {"pipelines": "raw", "blocks": 0, "seed": 3}),
        (["a.jsonl", "run"], {}),
    ],
)
def test_the_function_takes_what_the_command_takes_and_shows_the_same(cli, folder, paths, options):
    arguments = []
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            arguments += [f"--{'pipeline' if name == 'pipelines' else name}", str(each)]
    out = cli("compare", *paths, *arguments, "--csv", "table.csv").out
    found = cg.compare(*paths, **options)
    pd.testing.assert_frame_equal(pd.read_csv("table.csv"), pd.read_csv(io.StringIO(found.frame.to_csv(index=False))))
    assert repr(found).split() == out.split() and max(map(len, repr(found).splitlines())) < 130
    (folder / "table.csv").unlink()


def test_files_have_all_digits(cli, folder):
    files = ("--csv", "t.csv", "--latex", "t.tex", "--json", "t.json")
    for _ in range(2):  # what was written is replaced
        outcome = cli("compare", "image.npy", "text.npy", "--measures", "average_cosine", *files)
        assert outcome.status == 0, outcome.err
    (row,) = pd.read_csv("t.csv", float_precision="round_trip").to_dict("records")
    content = json.loads((folder / "t.json").read_text())
    (change,) = content["changes"]
    assert (content["flips"], content["seed"]) == (9999, 0)
    assert row["change"] == change["change"] == pytest.approx(row["after"] - row["before"], rel=1e-12)
    documented = {"before", "after", "change", "standard_error", "low", "high", "p_value", "verdict", "effect"}
    assert documented <= change.keys()
    (line,) = [line for line in (folder / "t.tex").read_text().splitlines() if line.startswith("Average cosine")]
    _, _, before, after, change, _ = line.removesuffix(r" \\").split(" & ")
    for cell, column in ((before, "before"), (after, "after"), (change, "change")):  # each has its own error
        value, error = map(float, cell.strip("$").split(r" \pm "))
        assert abs(value - row[column]) < error / 10 and error > 0
    assert re.findall(r"@misc{(.*?),", (folder / "t.bib").read_text())[0] == "clip-geometry"


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_cuts_nothing_and_fits(cli, folder, monkeypatch, width):
    names = ["average_cosine", "modality_silhouette[sqeuclidean]", "retrieval[mixed].image_to_text.r_at_1"]
    options = ["--pipeline", "normalize", "--pipeline", CENTERED, "--measures", ",".join(names)]
    monkeypatch.setenv("COLUMNS", "200")
    wide = cli("compare", ".", *options).out
    monkeypatch.setenv("COLUMNS", str(width))
    narrow = cli("compare", ".", *options).out
    assert max(map(len, narrow.splitlines()[2:])) <= width
    assert sorted("".join(narrow.split())) == sorted("".join(wide.split()))


def test_mistakes(refused, folder):
    (folder / "mine.bib").write_text("@article{mine,}")
    (folder / "b.jsonl").write_text('{"a": 1}')
    cg.Results(folder / "c.jsonl").append("cell", [{"value": 1.5}])
    for arguments, sentence in (
        (["a", "b"], "does not exist"),
        (["."], "one set of embeddings was given; expected at least one more, or several pipelines to compare on it"),
        (["a.jsonl"], "1 run was given; compare needs at least two"),
        (["a.jsonl", "b.jsonl"], "lacks cell: it is damaged or another kind of file"),
        (["a.jsonl", "c.jsonl"], "no finished result rows of a run"),
        (
            [".", "--pipeline", CENTERED, "--latex", "mine.tex"],
            "mine.bib, which has other entries",
        ),
    ):
        assert sentence in refused("compare", *arguments)
    assert (folder / "mine.bib").read_text() == "@article{mine,}" and not (folder / "mine.tex").exists()
