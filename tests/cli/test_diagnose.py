"""`diagnose`: the report, its files (all of them or none), and the command that comes next."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import clip_geometry as cg
from support.clip_like import clip_like


@pytest.fixture
def folder(tmp_path):
    for name, rows in clip_like(200).items():
        np.save(tmp_path / f"{name}.npy", rows.astype(np.float32))
    return tmp_path


def test_everything_is_printed_and_written(cli, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    files = ("--json", "d.json", "--figure", "d.svg", "--write", "r.safetensors")
    done = cli("diagnose", "image.npy", "text.npy", "--repairs", "zscore,posterior", "--splits", 2, *files)
    assert done.status == 0, done.err
    said = " ".join(done.out.split())
    for words in (
        "200 image rows × ",
        "to find a list with relevant results of both modalities",
        "relevant by pairs; 2 random halves (seed 0)",
        "of found: relevant items of other modalities in the top ten",
    ):
        assert words in said
    assert max(map(len, done.out.splitlines())) <= 80
    written = json.loads((folder / "d.json").read_text())
    assert {"shapes", "findings", "repairs", "recommended", "verdict", "facts"} <= written.keys()
    assert all(" ".join(sentence.split()) in said for sentence in written["verdict"])
    assert "<svg" in (folder / "d.svg").read_text()
    assert cg.search.Repair.load(folder / "r.safetensors").name == written["recommended"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--repairs", ""], "repairs were not compared: no repairs were requested"),
        (["--repairs", "center", "--want", "pairs"], "no repair helps beyond noise"),
        ([], "shuffled_pairs"),
    ],
    ids=["none asked for", "none helps", "shuffled"],
)
def test_the_report_is_printed_where_no_repair_can_be_saved(cli, folder, options, why):
    """Only saving is refused, in a sentence with status 2; the JSON that was asked for is complete."""
    if not options:
        order = np.random.default_rng(0).permutation(200)
        np.save(folder / "text.npy", np.load(folder / "text.npy")[order])
    if "center" in options:  # where nothing is to be gained
        np.save(folder / "text.npy", np.load(folder / "image.npy") + np.float32(1e-3))
    files = ("--write", "r.safetensors", "--json", "d.json", "--splits", 2)
    done = cli("diagnose", "image.npy", "text.npy", *options, *files)
    assert done.status == 2
    assert "200 image rows" in done.out and "diagnosis: d.json" in done.out
    verdict = json.loads((folder / "d.json").read_text())["verdict"]
    for sentence in verdict:
        assert " ".join(sentence.split()) in " ".join(done.out.split())
    (line,) = (line for line in done.err.splitlines() if "r.safetensors" in line)
    assert "r.safetensors was not written: " in line and why in line
    assert not (folder / "r.safetensors").exists()


def test_the_goal_is_stated(cli, folder):
    options = ("--repairs", "zscore,other,rrf", "--splits", 4, "--write", "r.safetensors")
    both, pairs = (cli("diagnose", "image.npy", "text.npy", "--want", want, *options) for want in ("both", "pairs"))
    assert "Use the baseline rrf" in both.out and "(--want both)" in both.out
    # a baseline needs no repair: the best one that an index serves is saved, and the verdict names it
    assert "take zscore" in both.out and cg.search.Repair.load(folder / "r.safetensors").name == "zscore"
    assert pairs.status == 2 and "r.safetensors exists" in pairs.err
    (folder / "r.safetensors").unlink()
    assert "Use the baseline other" in cli("diagnose", "image.npy", "text.npy", "--want", "pairs", *options).out


def test_labels_for_each_modality(cli, folder):
    rows = clip_like(90)
    np.save(folder / "names.npy", rows["text"][:30])
    np.save(folder / "photos.npy", rows["image"])
    (folder / "photos.txt").write_text("\n".join(str(k % 30) for k in range(90)))
    (folder / "names.txt").write_text("\n".join(map(str, range(30))))
    options = ("--labels", "image=photos.txt", "--labels", "text=names.txt", "--repairs", "zscore", "--splits", 1)
    done = cli("diagnose", "photos.npy", "names.npy", *options)
    assert done.status == 0, done.err
    assert "relevant by labels" in done.out
    assert "precision" in done.out


def test_errors_are_one_sentence(refused, folder):
    for options, sentence in (
        (["--repairs", "zscor"], "unknown repair 'zscor'"),
        (["--want", "ids"], "'ids' is not one of 'both', 'pairs'"),
        (["--relevant", "ids"], "'ids' is not one of 'labels', 'pairs'"),
        (["--repair", "zscore"], "--repair was given without --write"),
        (["--write", "repair.npz"], "is not a .safetensors file"),
        (["--figure", "d.jpeg"], "is not a .png or .svg or .pdf file"),
        (["--labels", "a.txt", "--labels", "image=b.txt"], "names no modality; write MODALITY=FILE"),
        (["nowhere.npy"], "nowhere.npy"),
    ):
        assert sentence in refused("diagnose", "image.npy", "text.npy", *options)


def test_everything_is_written_before_it_is_printed(folder):
    """`diagnose … --write FILE | head -1` ends the output after a line."""
    command = f"{Path(sys.executable).parent}/clip-geometry diagnose image.npy text.npy --repairs zscore --splits 1"
    subprocess.run(["sh", "-c", f"{command} --write r.safetensors --json d.json | head -1"], cwd=folder, check=True)
    assert cg.search.Repair.load(folder / "r.safetensors").name == "zscore"
    assert json.loads((folder / "d.json").read_text())["recommended"] == "zscore"


TWO_FILES = ("diagnose", "image.npy", "text.npy", "--repairs", "zscore", "--splits", "1")
TWO_FILES += ("--write", "r.safetensors", "--json", "d.json")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["disk", "Ctrl-C"])
def test_where_one_of_two_files_cannot_be_written_there_is_none(cli, folder, monkeypatch, error):
    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(cg.search.Repair, "save", fail)
        assert cli(*TWO_FILES).status == (2 if isinstance(error, OSError) else 130)
    assert not (folder / "d.json").exists() and not (folder / "r.safetensors").exists()
    assert cli(*TWO_FILES).status == 0


@pytest.mark.parametrize("name", ["zscore", "csls"])
def test_the_command_that_comes_next_works(cli, folder, name):
    options = ("--repairs", name, "--splits", 1, "--repair", name, "--write", "r.safetensors")
    done = cli("diagnose", "image.npy", "text.npy", *options)
    command = done.out.splitlines()[-1].removeprefix("next: clip-geometry ")
    assert cli(*shlex.split(command)).status == 0
    assert (folder / "index/items.faiss").exists()
