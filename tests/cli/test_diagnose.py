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


def test_diagnosis_of_two_files(cli, folder):
    done = cli("diagnose", "image.npy", "text.npy", "--repairs", "zscore,posterior", "--splits", 2)
    assert done.status == 0
    assert done.out.startswith("200 image rows × ")
    assert "Take " in done.out
    assert "recommended" in done.out
    assert "relevant by pairs; 2 random halves (seed 0)" in done.out


def test_everything_is_written(cli, folder):
    options = (
        "--repairs",
        "zscore",
        "--splits",
        2,
        "--json",
        "d.json",
        "--figure",
        "d.svg",
        "--write",
        "r.safetensors",
    )
    done = cli("diagnose", "image.npy", "text.npy", *options)
    assert done.status == 0, done.err
    told = json.loads((folder / "d.json").read_text())
    assert told["recommended"] == "zscore"
    assert "<svg" in (folder / "d.svg").read_text()
    assert cg.Repair.load(folder / "r.safetensors").name == "zscore"


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
    paths = ("image.npy", "text.npy")
    assert "unknown repair 'zscor'" in refused("diagnose", *paths, "--repairs", "zscor")
    assert "expected labels or pairs" in refused("diagnose", *paths, "--relevant", "ids")
    assert "there is no --write" in refused("diagnose", *paths, "--repair", "zscore")
    assert "is no .safetensors file" in refused("diagnose", *paths, "--write", "repair.npz")
    assert "is no .png, .svg, .pdf file" in refused("diagnose", *paths, "--figure", "d.jpeg")
    assert "was given with others" in refused("diagnose", *paths, "--labels", "a.txt", "--labels", "image=b.txt")
    assert "nowhere.npy" in refused("diagnose", "nowhere.npy")


def test_everything_is_written_before_it_is_printed(folder):
    """`diagnose … --write FILE | head -1` ends the output after a line."""
    command = f"{Path(sys.executable).parent}/clip-geometry diagnose image.npy text.npy --repairs zscore --splits 1"
    subprocess.run(["sh", "-c", f"{command} --write r.safetensors --json d.json | head -1"], cwd=folder, check=True)
    assert cg.Repair.load(folder / "r.safetensors").name == "zscore"
    assert json.loads((folder / "d.json").read_text())["recommended"] == "zscore"


@pytest.mark.parametrize("name", ["zscore", "csls", "quantile"])
def test_the_command_that_comes_next_works(cli, folder, name):
    options = ("--repairs", name, "--splits", 1, "--repair", name, "--write", "r.safetensors")
    done = cli("diagnose", "image.npy", "text.npy", *options)
    command = done.out.splitlines()[-1].removeprefix("next: clip-geometry ")
    assert cli(*shlex.split(command)).status == 0
    folders = {"zscore": "index/items.faiss", "csls": "script/repair.py", "quantile": "reranker/rerank.py"}
    assert (folder / folders[name]).exists()
