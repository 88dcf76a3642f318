"""Whatever is wrong, the user reads one sentence and the status is 2."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.config import read_yaml

DATA = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)


def npy(path, array):
    np.save(path, array, allow_pickle=True)
    return path


CONFIG = "name: t\nexperiment: geometry\nmodel: scenes-clip/fresh\npairs: {name: scenes, size: 4}\n"
SENTENCES = read_yaml(Path(__file__).with_name("wrong_commands.yaml"))["any"] | {
    f"measure {'x' * 5000}": "cannot be used: File name too long",
    f"measure image.npy --pipeline {'x' * 5000}": "unknown pipeline step",
}


def files_here():
    return {path for path in Path().rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize("command", SENTENCES)
def test_wrong_commands(refused, sets, tmp_path, command):
    (tmp_path / "two.txt").write_text("a\nb")
    (tmp_path / "groups.txt").write_text("\n".join(["a"] * 39 + ["b"]))
    (tmp_path / "photos").mkdir()
    for name, value in (("nan", np.nan), ("zero", 0)):
        npy(tmp_path / f"{name}.npy", np.where(np.arange(8)[:, None] == 3, np.float32(value), DATA))
    np.savez(tmp_path / "none.npz", DATA[:0])
    before = files_here()
    sentence = refused(*command.split(" "))
    assert SENTENCES[command] in sentence and sentence.isprintable() and len(sentence) <= 400
    assert files_here() == before


@pytest.mark.experiments
@pytest.mark.parametrize(
    ("text", "argument", "message"),
    [
        (CONFIG + "pipline: [normalize]", None, "unknown key 'pipline'; did you mean 'pipeline'"),
        (CONFIG.replace("size: 4", "siez: 4"), None, "did you mean 'size'"),
        (CONFIG.replace("scenes-clip/fresh", "open_clip:ViT-B-23/fresh"), None, "did you mean 'ViT-B-32'"),
        (CONFIG.replace("geometry", "geometri"), None, "unknown experiment 'geometri'; did you mean 'geometry'"),
        (CONFIG.replace("experiment: geometry\n", ""), None, "key 'experiment' is missing"),
        ("- a list", None, "a YAML mapping was expected"),
        (CONFIG, "seed", "'seed' is not of the form key=value"),
        (CONFIG, "--smoke", "has no section 'smoke'"),
    ],
)
def test_wrong_configs_and_arguments_of_run(refused, tmp_path, text, argument, message):
    (tmp_path / "c.yaml").write_text(text)
    assert message in refused("run", tmp_path / "c.yaml", *filter(None, [argument]))


@pytest.mark.experiments
@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("experiment: template", "experiment=geometry"),
        ("experiment: template\nsmoke: {experiment: geometry}", "--smoke"),
        ("experiment: template\nsweep: {experiment: [geometry, isotropy]}", "seed=1"),
    ],
)
def test_an_experiment_that_is_replaced_may_have_any_name(cli, tmp_path, text, argument):
    (tmp_path / "c.yaml").write_text(text)
    assert "template" not in cli("run", tmp_path / "c.yaml", argument).err


def test_a_full_disk_is_one_sentence(refused, sets, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("clip_geometry.files.os.fsync", full)
    sentence = refused("measure", sets[0], "--measures", "isoscore", "--json", tmp_path / "a.jsonl", out_may_be=True)
    assert sentence == f"cannot use {tmp_path / 'a.jsonl'}: No space left on device"
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(refused, sets):
    sets[0].chmod(0)
    assert "image.npy" in refused("measure", sets[0])


def test_in_a_process_of_its_own_too(tmp_path):
    """What the fixtures do in this process holds for the installed command; --debug keeps the traceback."""
    command = [str(Path(sys.executable).with_name("clip-geometry")), "measure", "none.npy"]
    plain = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (plain.returncode, plain.stdout) == (2, "")
    assert plain.stderr.startswith("clip-geometry: ") and plain.stderr.count("\n") == 1
    debug = subprocess.run([*command, "--debug"], capture_output=True, text=True, cwd=tmp_path)
    assert "Traceback" in debug.stderr
