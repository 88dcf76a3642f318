import errno
import gzip
import os
from pathlib import Path

import pytest

from clip_geometry.data.base import revision
from clip_geometry.data.tables import read_lines
from clip_geometry.io.reading import read_text
from clip_geometry.registry import InputError


@pytest.fixture
def three_files(tmp_path):
    for k, name in enumerate("abc"):
        (tmp_path / name).write_bytes(b"x" * (k + 1))
        os.utime(tmp_path / name, ns=(10**18, 10**18))
    return tmp_path


def _touch(folder):
    os.utime(folder / "b", ns=(10**18, 10**18 + 1000))


def _resize(folder):
    (folder / "b").write_bytes(b"longer")
    os.utime(folder / "b", ns=(10**18, 10**18))


def _remove(folder):
    (folder / "b").unlink()


@pytest.mark.parametrize("change", [_touch, _resize, _remove])
def test_the_revision_changes_with_times_sizes_and_files(three_files, change):
    before = revision(three_files, "abc")
    change(three_files)
    assert revision(three_files, "abc") != before


def test_what_cannot_be_a_file_name_counts_as_missing(three_files):
    assert revision(three_files, ["a\0"]) == revision(three_files, ["a\0"])
    assert revision(three_files, ["a\0"]) != revision(three_files, ["a"])


def test_a_file_that_a_disk_does_not_give_is_not_missing(three_files, monkeypatch):
    def fail(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "stat", fail)
    with pytest.raises(OSError, match="Input/output error"):
        revision(three_files, "abc")


def test_a_gzip_file_is_unpacked(tmp_path):
    whole = gzip.compress("\ufeffГрусть\n".encode())
    (tmp_path / "t.txt.gz").write_bytes(whole)
    assert read_text(tmp_path / "t.txt.gz", "a text") == "Грусть\n"
    damaged = whole[:12] + b"\xff\xff" + whole[14:]
    for broken in (b"no gzip", whole[:20], damaged):
        (tmp_path / "t.txt.gz").write_bytes(broken)
        with pytest.raises(InputError, match="is not a readable gzip file: it is damaged or cut short"):
            read_text(tmp_path / "t.txt.gz", "a text")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb", ["a", "b"]),
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb\r\n\r\n", ["a", "b"]),
        ("a\n\nb\n\n", ["a", "", "b"]),
        (" a \u2028\x85\n\u00a0b", [" a \u2028\x85", "\u00a0b"]),
    ],
)
def test_lines_end_at_line_feeds_only_and_keep_their_spaces(tmp_path, text, lines):
    (tmp_path / "t").write_bytes(text.encode())
    assert read_lines(tmp_path / "t") == lines
