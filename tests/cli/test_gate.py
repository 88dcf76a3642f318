"""`gate init` and `gate check`: exit statuses, files, and errors of one sentence."""

import json
import subprocess
import sys

import numpy as np
import pytest

from support.clip_like import clip_like


@pytest.fixture
def folder(tmp_path):
    for name, rows in clip_like(300).items():
        np.save(tmp_path / f"{name}.npy", rows)
    np.save(tmp_path / "other.npy", clip_like(300, space=1)["text"])
    return tmp_path


def test_the_exit_status_says_whether_the_index_changed(cli, folder):
    made = cli("gate", "init", "image.npy", "text.npy", "-o", "b.json", "--checks", 90)
    assert made.status == 0 and "baseline: b.json" in made.out
    same = cli("gate", "check", "image.npy", "text.npy", "--baseline", "b.json")
    assert (same.status, same.out.splitlines()[0]) == (0, "Same: the index is what it was.")
    np.save(folder / "text.npy", np.load(folder / "other.npy"))
    changed = cli("gate", "check", "image.npy", "text.npy", "--baseline", "b.json", "--json", "c.json")
    assert (changed.status, changed.out.splitlines()[0]) == (1, "Different model in text.")
    written = json.loads((folder / "c.json").read_text())
    assert (written["kind"], written["changed"]) == ("model", True)


def test_a_log_of_queries(cli, folder):
    cli("gate", "init", "image.npy", "text.npy", "-o", "b.json")
    np.savez(folder / "log.npz", text=np.load(folder / "other.npy"))
    done = cli("gate", "check", "image.npy", "text.npy", "--baseline", "b.json", "--queries", "log.npz")
    assert done.status == 1 and done.out.startswith("The queries are from another model than the index")


def test_errors_are_one_sentence(refused, folder):
    (folder / "b.json").write_text("{}")
    for command, sentence in (
        ("gate init image.npy", "gate init needs --out"),
        ("gate init image.npy -o b.npz", "is not a .json file"),
        ("gate init image.npy -o b.json", "b.json exists"),
        ("gate init image.npy -o c.json --baseline b.json", "gate init does not take --baseline"),
        ("gate check image.npy", "gate check needs --baseline"),
        ("gate check image.npy --baseline b.json -o c.json", "gate check does not take --out"),
        ("gate check image.npy --baseline b.json", "is JSON, but not a baseline"),
        ("gate check image.npy --baseline none.json", "none.json"),
        ("gate check image.npy --baseline b.json --queries none.npy", "none.npy"),
        ("gate look image.npy", "'look' is not one of 'init', 'check'"),
    ):
        said = refused(*command.split())
        assert sentence in said, said


def test_a_bug_has_another_status_than_a_change(tmp_path):
    program = "import clip_geometry as cg, clip_geometry.cli as cli; cg.read_gate = None; cli.main()"
    np.save(tmp_path / "image.npy", np.eye(120, 8))
    (tmp_path / "b.json").write_text("{}")
    command = [sys.executable, "-c", program, "gate", "check", "image.npy", "--baseline", "b.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" in done.stderr
