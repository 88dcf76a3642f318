import io
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import clip_geometry as cg
from clip_geometry.results import Record, Results

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 6)) + 1
Y = X + RNG.normal(size=(60, 6)) - 2
CENTERED = "normalize,center[each],normalize"


@pytest.fixture
def folder(tmp_path):
    """Two files of aligned rows."""
    (tmp_path / "pairs").mkdir()
    np.save(tmp_path / "pairs" / "image.npy", X)
    np.save(tmp_path / "pairs" / "text.npy", Y)
    return tmp_path / "pairs"


@pytest.fixture
def measured(cli, tmp_path):
    def run(name, rows, *options):
        np.save(tmp_path / f"{name}.npy", rows)
        outcome = cli("measure", tmp_path / f"{name}.npy", "--json", tmp_path / f"{name}.jsonl", *options)
        assert outcome.status == 0, outcome.err
        return tmp_path / f"{name}.jsonl"

    return run


class Page(HTMLParser):
    """Rows of the tables and lines of text that a notebook shows."""

    def __init__(self):
        super().__init__()
        self.rows, self.lines, self.open = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.open = tag
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag):
        self.open = ""

    def handle_data(self, data):
        if self.open in ("td", "th"):
            self.rows[-1].append(data)
        elif self.open == "p":
            self.lines.append(data)


def parse(shown):
    page = Page()
    page.feed(shown._repr_html_())
    return page


def line_of(out, *begin):
    (line,) = [line for line in out.splitlines() if line.split()[: len(begin)] == list(begin)]
    return line.split()[len(begin) :]


SAME = [
    (["image.npy", "text.npy"], {}),
    (["pairs"], {"pipelines": CENTERED}),
    (["pairs"], {"pipelines": ["raw", CENTERED], "measures": "modality_gap,silhouette", "labels": "labels.txt"}),
    (["image.npy", "text.npy"], {"pipelines": ["raw", "center"], "measures": "isoscore", "blocks": 5, "seed": 3}),
    (["image.npy", "text.npy", "image.npy"], {"pipelines": "raw", "blocks": 0}),
    (["a.jsonl", "text.npy"], {}),
    (["a.jsonl", "run"], {}),
]


@pytest.mark.parametrize(("paths", "options"), SAME)
def test_the_function_takes_what_the_command_takes_and_shows_the_same(cli, folder, tmp_path, paths, options):
    for path in folder.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "labels.txt").write_text("\n".join("ab"[k % 2] for k in range(60)))
    cg.measure("image.npy").to_json("a.jsonl")
    (tmp_path / "run").mkdir()
    cg.measure("text.npy").to_json(tmp_path / "run" / "results.jsonl")
    arguments = []
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            arguments += [f"--{'pipeline' if name == 'pipelines' else name}", str(each)]
    out = cli("compare", *paths, *arguments, "--csv", "table.csv").out
    found = cg.compare(*paths, **options)
    pd.testing.assert_frame_equal(pd.read_csv("table.csv"), pd.read_csv(io.StringIO(found.frame.to_csv(index=False))))
    assert repr(found).split() == out.split() and max(map(len, repr(found).splitlines())) < 130
    page = parse(found)
    cells = [
        line.split() for line in out.splitlines() if line.split()[:1] in [[row] for row in set(found.frame.measure)]
    ]
    rows = [" ".join(row).replace("−", "-").split() for row in page.rows if row[0] != "measure"]
    assert rows == cells
    assert next(" ".join(line.split()) for line in page.lines if " = " in line) in " ".join(out.split())


def test_two_pipelines_of_one_path(cli, folder):
    """Everything is compared, with paired errors, and what it means for retrieval stands on top."""
    out = cli("compare", folder, "--pipeline", "normalize", "--pipeline", CENTERED).out
    lines = out.splitlines()
    assert lines[0] == f"A = {folder} · normalize"
    assert lines[1] == f"B = {folder} · normalize → center[each] → normalize"
    assert "better in B than in A: " in out and "retrieval[mixed].image_to_text.r_at_1 (" in out
    cells = line_of(out, "modality_gap", "both")
    assert float(cells[2]) == pytest.approx(float(cells[1]) - float(cells[0]), abs=2e-3)  # rounded to three digits
    assert cells[3] == "±" and 0 < float(cells[4]) < 0.2 and cells[5] == "0.0001"
    assert "not compared" not in out and "independent" not in out
    assert "±: paired standard error of the difference, jackknife over the same 20 blocks" in out
    assert "9999 sign flips of the blocks, seed 0" in out


def test_one_path_and_one_pipeline_compare_with_the_default(cli, folder):
    options = ["--measures", "average_cosine,isoscore"]
    one = cli("compare", folder, "--pipeline", CENTERED, *options).out
    assert one == cli("compare", folder, "--pipeline", "normalize", "--pipeline", CENTERED, *options).out


def test_paths_with_a_pipeline_each_and_with_one_for_all(cli, folder, measured):
    other = measured("other", X + 1).with_suffix(".npy")
    out = cli("compare", folder / "image.npy", other, "--measures", "average_cosine", "--raw").out
    assert " · " not in out and "raw" not in out.splitlines()[0]  # what both have in common is no label
    assert "±" in line_of(out, "average_cosine", "rows")
    out = cli("compare", other, other, "--pipeline", "raw", "--pipeline", "center", "--measures", "average_cosine").out
    assert "other.npy · raw" in out and "other.npy · center" in out


def test_records_of_measure_are_paired_like_the_embeddings(cli, folder, measured):
    a, b = measured("a", X, "--measures", "average_cosine"), measured("b", Y, "--measures", "average_cosine")
    names = a.with_suffix(".npy"), b.with_suffix(".npy")
    records = line_of(cli("compare", a, b).out, "average_cosine", "rows")
    assert records == line_of(cli("compare", *names, "--measures", "average_cosine").out, "average_cosine", "rows")
    assert "±" in records and "independent" not in records


def test_other_items_are_said_to_be_independent(cli, measured):
    names = ("--measures", "average_cosine,isoscore")
    out = cli("compare", measured("a", X, *names), measured("b", Y[:50], *names)).out
    assert "±" in line_of(out, "average_cosine", "rows") and "paired" not in out
    assert "not compared: " in out and "depends on n, which is 60 and 50; measure as many rows of both" in out
    assert line_of(out, "isoscore", "rows")[-2:] == ["not", "compared"]
    assert "independent: not the same items in the same blocks" in out


def test_what_the_errors_take_for_granted_is_said(cli, folder, measured):
    """Rows without ids, a pipeline that saw what it is measured on, and the test of shares."""
    a, b = measured("a", X, "--measures", "average_cosine"), measured("b", Y, "--measures", "average_cosine")
    out = re.sub(r"\s+", " ", cli("compare", a, b).out)
    assert "the items have no ids: row i of one column is assumed to be the item of row i of the other" in out
    out = re.sub(r"\s+", " ", cli("compare", folder, "--pipeline", CENTERED).out)
    assert "have no ids" not in out  # the same rows
    assert "B saw these items: center was fitted on them" in out and "A saw" not in out
    assert "[ ]: 95% interval of the difference of two shares (Newcombe); p by McNemar's test" in out


def test_only_measures_that_describe(cli, folder):
    out = cli("compare", folder, "--pipeline", CENTERED, "--measures", "isoscore").out
    assert "whether B is better than A, no measure here says: all describe the geometry" in out


def test_files_have_all_digits(cli, folder, tmp_path):
    files = [f"--{kind}={tmp_path / kind}" for kind in ("csv", "latex", "json")]
    assert cli("compare", folder, "--pipeline", CENTERED, "--measures", "modality_gap", *files).status == 0
    (row,) = pd.read_csv(tmp_path / "csv").to_dict("records")
    content = json.loads((tmp_path / "json").read_text())
    assert (content["flips"], content["seed"]) == (9999, 0)
    (change,) = content["changes"]
    assert row["change"] == change["change"] == row["after"] - row["before"]
    assert row["from"] == f"{folder} · normalize" and row["error"] == "paired"
    latex = (tmp_path / "latex").read_text()
    (line,) = [line for line in latex.splitlines() if line.startswith("Modality gap")]
    _, place, before, after, change, p = line.removesuffix(r" \\").split(" & ")
    for cell, column in ((before, "before"), (after, "after"), (change, "change")):  # each has its own error
        value, error = map(float, cell.strip("$").split(r" \pm "))
        assert abs(value - row[column]) < error / 10 and error > 0
    assert place == "both" and p == "0.0001"
    cited = re.search(r"\\caption{(.*)}$", latex, re.MULTILINE)[1]
    assert "normalize (A)" in cited and re.findall(r"cite{(.*?)}", cited) == ["clip-geometry", "liang2022"]
    entries = re.findall(r"@misc{(.*?),", (tmp_path / "latex.bib").read_text())
    assert entries == ["clip-geometry", "liang2022"]


def test_a_bibliography_of_others_is_kept(cli, refused, folder, tmp_path):
    (tmp_path / "mine.bib").write_text("@article{mine,}")
    arguments = ("compare", folder, "--pipeline", CENTERED, "--measures", "modality_gap", "--latex")
    assert "mine.bib, where the BibTeX entries of the table go, has others" in refused(
        *arguments, tmp_path / "mine.tex"
    )
    assert (tmp_path / "mine.bib").read_text() == "@article{mine,}" and not (tmp_path / "mine.tex").exists()
    for _ in range(2):  # what was written is replaced
        assert cli(*arguments, tmp_path / "a.tex").status == 0


def test_seeds_of_a_run_are_averaged(cli, tmp_path):
    for name, shift in (("a", 0.0), ("b", 0.1)):
        (tmp_path / name).mkdir()
        at = {"modality": "image"}
        rows = [Record("isoscore", 0.2 + k / 100 + shift, n=9, at=at, model=name, seed=k) for k in range(3)]
        Results(tmp_path / name / "results.jsonl").append("cell", rows)
    out = cli("compare", "a", "b").out
    assert out.splitlines()[:2] == ["A = a · mean over 3 seeds", "B = b · mean over 3 seeds"]
    assert line_of(out, "isoscore", "image")[:6] == ["0.210", "±", "0.010", "0.310", "±", "0.010"]
    assert "values of several seeds are mean ± standard deviation" in out


def test_three_columns_are_compared_with_the_first(cli, folder):
    steps = [part for each in ("normalize", "center[each]", CENTERED) for part in ("--pipeline", each)]
    out = cli("compare", folder, *steps, "--measures", "average_cosine").out
    heads = [line.split() for line in out.splitlines() if line.startswith("measure ")]
    assert heads == [["measure", "set", "A", x, x, "-", "A", "p"] for x in "BC"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_cuts_nothing_and_fits(cli, folder, monkeypatch, width):
    names = ["average_cosine", "modality_silhouette[sqeuclidean]", "retrieval[mixed].image_to_text.r_at_1"]
    options = ["--pipeline", CENTERED, "--measures", ",".join(names)]
    monkeypatch.setenv("COLUMNS", "200")
    wide = cli("compare", folder, *options).out
    monkeypatch.setenv("COLUMNS", str(width))
    narrow = cli("compare", folder, *options).out
    assert max(map(len, narrow.splitlines()[2:])) <= width or width == 60
    assert sorted("".join(narrow.split())) == sorted("".join(wide.split()))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pairs"], "one set of embeddings was given; give others, or pipelines to compare on it"),
        (["a.jsonl"], "1 run given; compare needs at least two"),
        (["pairs", "--raw", "--pipeline", "center"], "--raw and --pipeline were both given"),
        (["pairs", "missing"], "missing does not exist; embeddings, a run folder"),
        (["pairs", "--pipeline", "centre"], "unknown pipeline step 'centre'"),
        (["pairs", "pairs", *["--pipeline", "center"] * 3], "3 pipelines and 2 operands were given"),
        (
            ["pairs", "a.jsonl", "--pipeline", "center", "--blocks", "0"],
            "a.jsonl holds records, which are compared as they are; leave out pipelines, blocks, for embeddings",
        ),
    ],
)
def test_errors(refused, folder, tmp_path, arguments, sentence):
    Results(tmp_path / "a.jsonl").append("cell", [Record("isoscore", 0.2, at={})])
    assert refused("compare", *arguments).startswith(sentence)
