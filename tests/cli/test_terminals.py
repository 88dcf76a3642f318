"""Closed streams, pipes that end early, terminals of few characters, and text that a terminal would obey."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.display.table import Table, TableColumn, say
from clip_geometry.files import claimed
from clip_geometry.progress import note

ESCAPES = "\x1b[31mred\x07\x9b2J\u202etxt\udcff\r\n"
SHOWN = r"\x1b[31mred\x07\x9b2J\u202etxt\udcff\r"


def run(app, redirection, **environment):
    """The command line with `app` instead of its commands, which import what takes seconds."""
    code = (
        "import clip_geometry.cli as c; from clip_geometry.progress import note\n"
        f"def app(**_):\n    {app}\n"
        "c.app = app; c.main()"
    )
    shell = f'"$PYTHON" -c "$CODE" {redirection}'
    found = {"PYTHON": sys.executable, "CODE": code, **environment}
    child = subprocess.run(
        ["bash", "-c", f"{shell}; echo status $?"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=os.environ | found,
    )
    assert "Traceback" not in child.stderr and "Exception ignored" not in child.stderr, child.stderr
    return child.stdout, child.stderr


def test_what_is_opened_does_not_take_the_place_of_a_closed_stream(tmp_path):
    """A file of its number would hold whatever is written to stderr, by libraries of C, too."""
    app = f"import os; x = open(r'{tmp_path}/x', 'w'); assert x.fileno() > 2; note('n'); print('p'); os.write(2, b'c')"
    for closed in ("2>&-", ">&-", ">&- 2>&-", "<&- >&- 2>&-"):
        out, _ = run(app, closed)
        assert out.endswith("status 0\n")
        assert (tmp_path / "x").read_text() == ""


def test_an_error_needs_no_stderr():
    for closed in ("2>&-", "2>/dev/full"):
        assert run("raise c.InputError('x')", closed) == ("status 2\n", "")


BUFFERED = pytest.mark.parametrize("unbuffered", ["", "1"])


@BUFFERED
def test_a_reader_that_has_seen_enough_is_no_error(unbuffered):
    out, err = run("print('a\\n' * 100000)", "| head -1", PYTHONUNBUFFERED=unbuffered)
    assert (out, err) == ("a\nstatus 0\n", "")


@BUFFERED
def test_a_full_disk_is_one_sentence(unbuffered):
    out, err = run("print('a')", "> /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert err.startswith("clip-geometry: ") and err.endswith(": No space left on device\n")
    assert out == "status 2\n" and err.count("\n") == 1


@pytest.mark.parametrize(
    ("encoding", "expected"), [("ascii", "? ? ?"), ("latin-1", "\ufffd ? ?"), ("utf-8", "± … \N{CAT}")]
)
def test_characters_that_a_terminal_lacks_are_replaced(encoding, expected):
    app = "print('\\u00b1 \\u2026 \\U0001f408'); raise c.InputError('\\u00b1 \\u2026 \\U0001f408')"
    out, err = run(app, "", PYTHONIOENCODING=encoding)
    assert out == f"{expected}\nstatus 2\n" and err == f"clip-geometry: {expected}\n"


def test_nothing_that_a_terminal_obeys_is_printed(cli, capsys, tmp_path):
    say(ESCAPES)
    columns = [TableColumn("measure"), TableColumn(ESCAPES, "number")]  # as where --by groups by a column of a file
    Table(columns, {"": [[ESCAPES, ESCAPES.strip()]]}).print()
    note(ESCAPES)
    captured = capsys.readouterr()
    assert captured.err == f"{SHOWN}\\n\n" and all(line.isprintable() for line in captured.out.splitlines())
    row = {"measure": ESCAPES, "value": 1.0, "n": 3, "at": {"modality": ESCAPES}, "model": ESCAPES, "dataset": ESCAPES}
    row |= {"cell": "a", "cell_row": 0, "cell_rows": 1, "pipeline": [ESCAPES], "d": 2}
    for name in "ab":
        (tmp_path / name).write_text(json.dumps({**row, "n": 3 + (name == "b")}) + "\n")
    outcome = cli("compare", tmp_path / "a", tmp_path / "b")
    assert all(line.isprintable() for line in (outcome.out + outcome.err).splitlines())


# --- one file for one process


@pytest.mark.parametrize("command", [("measure", "{}", "--json"), ("fit", "normalize", "{}", "-o")])
def test_a_file_is_written_by_one_process_at_a_time(tmp_path, refused, sets, command):
    path, command = tmp_path / "x.safetensors", [part.format(sets[0]) for part in command]
    with claimed(path):
        assert refused(*command, path) == f"another process is writing {path}; choose another name"
        path.with_name("other").write_text("rows\n")
        path.with_name("other").replace(path)  # as the first one ends
        assert refused(*command, path) == f"{path} exists; choose another name or remove it first"
    assert path.read_text() == "rows\n"


# --- paths that are none


@pytest.fixture
def strange(tmp_path, monkeypatch):
    """Names of things that no command can read or write."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    for name in ("loop", "loop.npy"):
        Path(name).symlink_to(name)
    return ["~nouser/x", "fifo", "loop", "loop.npy", "loop/x", "x" * 5000, "y/" * 2500, "fifo/x"]


@pytest.mark.parametrize(
    "command",
    [
        ("measure", "{}"),
        ("measure", "image.npy", "{}"),
        ("measure", "image.npy", "--labels", "{}"),
        ("measure", "image.npy", "--json", "{}"),
        ("embed", "scenes-clip/fresh", "{}", "-o", "out"),
        ("embed", "scenes-clip/fresh", "scenes", "-o", "{}"),
        ("run", "{}"),
        ("compare", "{}", "{}"),
        ("fit", "normalize", "{}", "-o", "map.safetensors"),
        ("fit", "normalize", "image.npy", "-o", "{}"),
        ("apply", "{}", "image.npy", "-o", "out"),
        ("apply", "map.safetensors", "image.npy", "-o", "{}"),
    ],
    ids=" ".join,
)
def test_paths_that_cannot_be_used_are_refused_at_once(refused, sets, strange, command):
    np.save("image.npy", np.load(sets[0]))
    before = set(Path().iterdir())
    for path in strange:
        sentence = refused(*(part.format(path) for part in command))
        assert sentence.isprintable() and len(sentence) <= 400, path
    assert set(Path().iterdir()) == before


def test_home_is_put_in_everywhere(cli, sets, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cli("measure", "~/image.npy", "--measures", "isoscore", "--json", "~/rows.jsonl").status == 0
    assert cli("fit", "normalize", "~/image.npy", "-o", "~/map.safetensors").status == 0
    assert cli("apply", "~/map.safetensors", "~/image.npy", "-o", "~/moved").status == 0
    assert cli("embed", "scenes-clip/fresh", "scenes", "size=2", "-o", "~/store").status == 0
    found = {path.name for path in tmp_path.iterdir()}
    assert {"rows.jsonl", "map.safetensors", "moved", "store"} <= found and "~" not in found
