import errno
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clip_geometry.files import (
    claimed,
    exclusive,
    new_folder,
    read_json,
    remove_temporaries,
    sha256_of,
    write_atomically,
    write_json,
    writing,
)
from clip_geometry.registry import InputError


def test_a_file_is_replaced_as_a_whole_and_its_checksum_returned(tmp_path):
    path = tmp_path / "x.bin"
    write_atomically(path, b"old")
    checksum = write_atomically(path, b"new content")
    assert path.read_bytes() == b"new content"
    assert checksum == hashlib.sha256(b"new content").hexdigest() == sha256_of(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_cannot_be_flushed_leaves_the_old_file_and_no_temporary(tmp_path, monkeypatch):
    path = tmp_path / "x.bin"
    write_atomically(path, b"old")

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(path, b"new")
    assert caught.value.filename == str(path)  # not the temporary's
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("make", [lambda folder: folder.touch(), lambda folder: None])
def test_a_folder_that_cannot_be_written_into_is_said_of_the_wanted_file(tmp_path, make):
    make(tmp_path / "folder")
    with pytest.raises(OSError, match=r"folder/x\.bin'$") as caught:
        write_atomically(tmp_path / "folder/x.bin", b"new")
    assert caught.value.filename == str(tmp_path / "folder/x.bin")


def test_temporaries_of_one_name_are_removed_but_for_those_that_are_being_written(tmp_path):
    (tmp_path / ".[x].0123.tmp").touch()
    (tmp_path / ".[x]y.0123.tmp").touch()
    for name in ("notes.tmp", ".lock"):  # which are no temporaries
        (tmp_path / name).touch()
    (tmp_path / "below").mkdir()
    (tmp_path / "below/.z.0123.tmp").mkdir()
    (tmp_path / "below/.z.0123.tmp/half").touch()
    with writing(tmp_path / "[x]") as file, new_folder(tmp_path / "folder") as folder:
        file.write(b"whole")
        (folder / "part").touch()
        remove_temporaries(tmp_path, "[x]")
        assert {path.name for path in tmp_path.iterdir()} == {
            ".[x]y.0123.tmp",
            "below",
            "notes.tmp",
            ".lock",
            Path(file.name).name,
            folder.name,
        }
        remove_temporaries(tmp_path)
        assert list((tmp_path / "below").iterdir()) == []
    assert (tmp_path / "[x]").read_bytes() == b"whole" and (tmp_path / "folder/part").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"below", "[x]", "folder", "notes.tmp", ".lock"}


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "folder") as folder:
        (folder / "part").touch()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_json_carries_its_checksum(tmp_path):
    path, values = tmp_path / "x.json", {"b": [1, 2.5, None], "a": "ё"}
    write_json(path, values)
    assert read_json(path) == values
    assert list(json.loads(path.read_text())) == ["b", "a", "checksum"]


@pytest.mark.parametrize(
    "content", [b"", b'{"a": 1', b"[1]", b'{"a": 1}', b'{"a": 2, "checksum": "015abd7f5cc57a2d"}', b"\xff\xfe"]
)
def test_damaged_json_reads_as_none(tmp_path, content):
    write_json(tmp_path / "x.json", {"a": 1})
    assert '"015abd7f5cc57a2d"' in (tmp_path / "x.json").read_text()  # the last but one differs in the value only
    (tmp_path / "x.json").write_bytes(content)
    assert read_json(tmp_path / "x.json") is None
    assert read_json(tmp_path / "y.json") is None


def test_json_that_a_disk_does_not_give_is_no_damage(tmp_path, monkeypatch):
    write_json(tmp_path / "x.json", {"a": 1})

    def fail(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError, match="Input/output error"):
        read_json(tmp_path / "x.json")


def test_the_lock_admits_one_at_a_time_and_tells_the_other(tmp_path):
    events, waiting = [], threading.Event()

    def second():
        with exclusive(tmp_path, waiting.set):
            events.append("second")

    with exclusive(tmp_path, lambda: events.append("never")):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(timeout=10)
        events.append("first")
    thread.join(timeout=10)
    assert events == ["first", "second"]


def test_a_temporary_that_another_process_removes_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    lock, removed = fcntl.flock, []

    def removing(descriptor, kind):
        for path in [] if removed else tmp_path.glob(".*.tmp"):
            path.rmdir()
            removed.append(path)
        lock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", removing)
    with new_folder(tmp_path / "folder") as folder:
        (folder / "part").touch()
    assert removed and (tmp_path / "folder/part").exists()


# --- a new file is reserved by one process


def test_a_claim_is_one_process_s_and_leaves_nothing(tmp_path):
    path = tmp_path / "x.json"
    (tmp_path / "link").symlink_to(path)
    with claimed(path):
        assert not path.exists()
        with pytest.raises(InputError, match="another process is writing"), claimed(tmp_path / "link"):
            pass
        write_atomically(path, b"rows")
    assert path.read_bytes() == b"rows" and {each.name for each in tmp_path.iterdir()} == {"x.json", "link"}
    with pytest.raises(InputError, match=r"x\.json exists; choose another name"), claimed(path):
        pass


KILLED = """
import os, sys
from pathlib import Path
from clip_geometry.files import claimed, write_atomically

with claimed(Path("a.json")) as a, claimed(Path("b.json")):
    if sys.argv[1] == "written":
        write_atomically(a, b"rows")
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("when", ["before", "written"])
def test_the_next_process_takes_over_what_a_killed_one_claimed(tmp_path, monkeypatch, when):
    """The file that it has written as well, but not another one in its place."""
    monkeypatch.chdir(tmp_path)
    assert subprocess.run([sys.executable, "-c", KILLED, when]).returncode == -9
    assert Path("a.json").exists() == (when == "written")
    if when == "written":
        Path("a.json").rename("aside")
        Path("a.json").write_bytes(b"rows")
        with pytest.raises(InputError, match="exists"), claimed(Path("a.json")):
            pass
        Path("aside").replace("a.json")
    with claimed(Path("a.json")) as a, claimed(Path("b.json")):
        write_atomically(a, b"other")
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"] and Path("a.json").read_bytes() == b"other"


def test_what_is_no_new_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    Path("loop").symlink_to("loop")
    Path("file").write_text("mine")
    Path("empty").touch()
    for path, sentence in (
        (".", "is a directory"),
        ("fifo", "is a pipe, a socket or a disk"),
        ("loop", "cannot"),
        ("file", "file exists"),
        ("file/x", "file is a file, not a folder, so file/x cannot be written"),
        ("none/x", "the folder none does not exist"),
        ("/proc/x", "cannot write to /proc/x"),
    ):
        with pytest.raises(InputError, match=sentence), claimed(Path(path)):
            pass
    for path in ("empty", "/dev/null"):
        with claimed(Path(path)):
            pass
