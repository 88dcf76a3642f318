"""`match`: the table, its files, what `ship` makes of them, and errors of one sentence."""

import json
import subprocess
import sys

import numpy as np
import pytest

import clip_geometry as cg


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    item = rng.normal(size=(200, 16))
    for name in ("image", "text"):
        np.save(tmp_path / f"{name}.npy", (item + 0.7 * rng.normal(size=(200, 16))).astype(np.float32))
    np.save(tmp_path / "other.npy", rng.normal(size=(100, 16)).astype(np.float32))
    return tmp_path


def test_everything_is_printed_and_written(cli, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    files = ("--json", "m.json", "--figure", "m.svg", "--write", "match.json")
    done = cli("match", "image.npy", "text.npy", "--answerable", 0.2, *files)
    assert done.status == 0, done.err
    words = " ".join(done.out.split())
    assert words.startswith(
        "If 20% of the image queries have an answer among 200 text items, the first result is right"
    )
    assert "false accepts" in words and "image → text" in words and "models: match.json" in words
    numbers = {
        (row["direction"], row["number"], row["false_accepts"]) for row in json.loads((folder / "m.json").read_text())
    }
    assert ("image_to_text", "kept", 0.05) in numbers and ("text_to_image", "auc", None) in numbers
    assert "<svg" in (folder / "m.svg").read_text()
    fitted = cg.read_match(folder / "match.json")
    assert fitted["text_to_image"].answerable == 0.2
    assert cli("ship", "match.json", "-o", "script", "--to", "numpy").status == 0
    subprocess.run(
        [sys.executable, "-c", "import match; match.cutoff('image_to_text')"], cwd=folder / "script", check=True
    )


def test_anchors_and_labels(cli, folder):
    (folder / "labels.txt").write_text("".join(f"{k % 100}\n" for k in range(200)))
    done = cli("match", "image.npy", "--anchors", "text=other.npy")
    assert done.status == 0 and "there are no probabilities" in " ".join(done.out.split())
    nothing = " ".join(cli("match", "image.npy", "--labels", "labels.txt", "--write", "no.json").out.split())
    assert "Scores cannot identify" in nothing and "check that row k" in nothing and "in Python" not in nothing
    anchored = cli("match", "image.npy", "--anchors", "text=other.npy", "--write", "anchored.json").out
    assert ".accepts(top, …)" in anchored and ".probability" not in anchored


def test_errors_are_one_sentence(refused, folder):
    (folder / "maps.json").write_text("{}")
    for command, sentence in (
        ("match image.npy other.npy", "no labels (200 image rows, 100 text rows)"),
        ("match image.npy text.npy --answerable 1.5", "Invalid value for '--answerable'"),
        ("match image.npy text.npy --write m.safetensors", "is not a .json file"),
        ("match image.npy text.npy --figure m.jpeg", "is not a .png or .svg or .pdf file"),
        ("match image.npy --anchors other.npy", "--anchors other.npy names no modality"),
        (
            "match image.npy --anchors text=other.npy --figure m.png",
            "there is no figure for models that were fitted without pairs",
        ),
        ("match nowhere.npy", "nowhere.npy does not exist"),
        ("ship maps.json -o out --to numpy", "not match models"),
        ("ship maps.json image.npy -o out --to faiss", "match models hold no rows"),
    ):
        assert sentence in refused(*command.split()), command
    assert not (folder / "m.png").exists() and not (folder / "out").exists()
