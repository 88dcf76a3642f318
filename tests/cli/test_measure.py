import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.geometry import average_cosine, measures, modality_gap, null_value
from clip_geometry.results import read_rows


def value_of(rows, measure, modality):
    (row,) = [row for row in rows if (row["measure"], row["at"].get("modality")) == (measure, modality)]
    return row


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture
def rows(cli, sets, tmp_path):
    def run(*options):
        outcome = cli("measure", *sets, *options, "--json", tmp_path / "rows.jsonl")
        assert outcome.status == 0, outcome.err
        return outcome, read_rows(tmp_path / "rows.jsonl")

    return run


def test_rows_are_made_unit_length_first(rows, sets):
    outcome, found = rows()
    image, text = (np.load(path).astype(float) for path in sets)
    assert "pipeline: normalize" in outcome.out
    assert value_of(found, "modality_gap", "both")["value"] == pytest.approx(
        float(modality_gap(unit(image), unit(text)))
    )
    assert value_of(found, "average_cosine", "text")["value"] == pytest.approx(float(average_cosine(text)))


def test_raw_takes_them_as_they_are(rows, sets):
    outcome, found = rows("--raw")
    image, text = (np.load(path) for path in sets)
    assert "raw (rows as they are)" in outcome.out
    assert value_of(found, "modality_gap", "both")["value"] == pytest.approx(float(modality_gap(image, text)))


def test_every_default_measure_has_a_row_or_a_note(rows):
    _, found = rows()
    assert {row["measure"] for row in found} == {name for name, measure in measures.items() if measure.by_default}
    notes = {row["measure"]: row["note"] for row in found if row["value"] is None}
    assert notes.pop("lid").startswith("x has 40 rows; expected at least 101")
    assert set(notes.values()) == {"needs labels"}


def test_the_table_shows_each_row(rows):
    outcome, found = rows()
    for row in found:
        assert row["measure"] in outcome.out
    gap = value_of(found, "modality_gap", "both")
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("modality_gap ")]
    assert f"{gap['value']:.3f}" in line and "lower is closer" in line


def test_named_measures_only_and_in_their_order(rows):
    _, found = rows("--measures", "isoscore, silhouette[cosine],average_cosine".replace("silhouette[cosine],", ""))
    assert [row["measure"] for row in found] == ["isoscore"] * 2 + ["average_cosine"] * 2


def test_rows_say_where_they_come_from(rows, sets):
    _, found = rows("--pipeline", "normalize,center[pooled]", "--seed", "3")
    row = value_of(found, "isoscore", "image")
    assert row["pipeline"] == ["normalize", "center[pooled]"]
    assert row["fitted_on"] == f"{sets[0]} + {sets[1]}:pooled"
    assert (row["n"], row["d"], row["dtype"], row["seed"]) == (40, 6, "float32", 3)
    assert str(sets[0]) in row["dataset"]
    assert "torch" in row["versions"]


def test_null_values_are_those_of_the_library(rows):
    _, found = rows()
    expected = null_value("modality_gap", 40, 6, prepare=lambda x: x / x.norm(dim=1, keepdim=True))
    assert value_of(found, "modality_gap", "both")["null_value"] == pytest.approx(float(expected), rel=1e-9)
    assert value_of(found, "isoscore", "text")["null_value"] != value_of(found, "isoscore", "text")["value"]


def test_labels(rows, tmp_path):
    (tmp_path / "labels.json").write_text(json.dumps(["cat", "dog"] * 20))
    _, found = rows("--labels", tmp_path / "labels.json")
    assert -1 < value_of(found, "silhouette", "image")["value"] < 1
    assert {row["measure"] for row in found if row["value"] is None} == {"lid"}  # of a hundred neighbours


def test_by_a_column(rows, tmp_path, sets):
    (tmp_path / "labels.json").write_text(json.dumps(["cat"] * 10 + ["dog"] * 30))
    _, found = rows("--labels", tmp_path / "labels.json", "--by", "label", "--measures", "average_cosine")
    places = {(row["at"]["label"], row["at"]["modality"]): row for row in found}
    assert {key: row["n"] for key, row in places.items()} == {
        ("cat", "image"): 10, ("cat", "text"): 10, ("dog", "image"): 30, ("dog", "text"): 30,
    }  # fmt: skip
    image = np.load(sets[0])
    assert places["dog", "image"]["value"] == pytest.approx(float(average_cosine(image[10:])))


def test_an_older_json_file_is_replaced(rows, tmp_path):
    (tmp_path / "rows.jsonl").write_text("something else\n")
    _, found = rows("--measures", "isoscore")
    assert len(found) == 2
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 2


def test_links_are_followed_and_devices_written_to(rows, cli, sets, tmp_path):
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(real)
    assert cli("measure", sets[0], "--json", link).status == 0
    assert link.is_symlink() and real.read_text()
    assert cli("measure", sets[0], "--json", "/dev/null").status == 0
    assert Path("/dev/null").is_char_device()


def test_every_row_shows_its_n(cli, sets, tmp_path):
    short = tmp_path / "s.npy"
    np.save(short, np.load(sets[1])[:30])
    lines = {line.split()[0]: line.split() for line in cli("measure", sets[0], short).out.splitlines() if line}
    assert lines["modality_gap"][1:3] == ["both", "70"]


def test_ctrl_c_is_one_sentence(sets, tmp_path):
    """A process that is interrupted while it measures."""
    code = (
        "import os, signal, sys; from clip_geometry.cli import main; import clip_geometry.cli.measure_files as m\n"
        "m.read_sets = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['clip-geometry', 'measure', 'x.npy']; main()"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert child.returncode == 130
    assert child.stderr == "clip-geometry: interrupted; embed and run continue when they are started again\n"


@pytest.mark.parametrize(("width", "explained"), [(120, True), (70, False)])
def test_a_narrow_terminal_keeps_the_numbers_whole(cli, sets, monkeypatch, width, explained):
    from rich.console import Console

    monkeypatch.setattr("clip_geometry.cli.measure_files.console", lambda: Console(width=width, markup=False))
    out = cli("measure", *sets).out
    (line,) = [line for line in out.splitlines() if line.startswith("modality_silhouette[sqeuclidean] ")]
    assert len(line.split()) >= 5
    assert ("lower is more mixed" in line) == explained
