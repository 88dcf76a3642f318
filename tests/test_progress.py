"""What a user sees of long work: a bar in a terminal, lines on stderr elsewhere, nothing of short work."""

import io
import subprocess
import sys

import pytest

from clip_geometry import progress as module
from clip_geometry.progress import PassProgress, duration, note, progress, quiet


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """A clock that is set."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    return clock


def work(clock, total, steps, done=0):
    """Work whose units (count) take (seconds) each."""
    with progress("image", total=total, done=done) as advance:
        for seconds, count in steps:
            clock.now += seconds
            advance(count)


def test_plain_lines_come_at_most_every_five_seconds_and_say_how_long_it_takes(capsys, clock):
    work(clock, 1000, ((2, 60), (2, 60), (2, 60), (1, 20), (5, 40)), done=200)
    assert capsys.readouterr().err.splitlines() == [
        "image: 380 of 1000, about 21 s left, 30.0/s",  # after the first units, which may have loaded a model
        "image: 440 of 1000, about 32 s left, 18.0/s",
        "image: 440 of 1000 in 12 s, 18.0/s",
    ]


def test_short_work_has_no_lines_and_nothing_done_no_remaining_time(capsys, clock):
    work(clock, 8, ((1, 4), (2, 4)))
    assert capsys.readouterr().err == ""
    work(clock, 10, ((6, 0),))
    assert capsys.readouterr().err == "image: 0 of 10\nimage: 0 of 10 in 6 s\n"


def test_a_unit_with_a_name_is_shown_at_once_and_then_every_five_seconds(capsys, clock):
    with progress("cells", total=3) as advance:
        for name in ("a gap", "a cone", "a map"):
            advance.now(name)
            clock.now += 4
            advance(1)
    assert capsys.readouterr().err.splitlines() == [
        "cells: 0 of 3; now a gap",
        "cells: 2 of 3, about 4 s left, 0.2/s; now a cone",
        "cells: 3 of 3 in 12 s, 0.2/s",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "1 s"),
        (89, "89 s"),
        (91, "2 min"),
        (89 * 60, "89 min"),
        (3 * 3600, "3 h"),
        (7900, "2 h 10 min"),
        (2e5, "2 days"),
    ],
)
def test_a_duration_is_in_words(seconds, words):
    assert duration(seconds) == words


# --- on a terminal


def test_a_terminal_gets_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("image[0]", total=8, done=2) as advance:
        advance.now("isoscore[unbiased]")
        advance(5)
    assert "image[0]" in terminal.getvalue() and "7 of 8" in terminal.getvalue()
    assert "now isoscore[unbiased]" in terminal.getvalue()  # which is no markup


def test_bars_share_a_display_and_a_note_stands_above_them(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("cells", total=2) as outer:
        with progress("image", total=8) as inner:
            inner(3)
            assert inner.display is outer.display and len(outer.display.tasks) == 2
            note("a remark")
        assert [task.description for task in outer.display.tasks] == ["cells"]
        outer(2)
    assert "a remark\n" in terminal.getvalue() and "2 of 2" in terminal.getvalue()


def test_an_error_closes_the_display(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(KeyboardInterrupt), progress("cells", total=2) as cells, progress("image", total=8):
        raise KeyboardInterrupt
    assert module._running == [] and not cells.display.live.is_started


# --- elsewhere


def test_elsewhere_it_is_lines_on_stderr(capsys, monkeypatch):
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    with progress("image", total=8, done=2) as advance:
        advance(6)
    with pytest.raises(KeyboardInterrupt), progress("text", total=8):
        raise KeyboardInterrupt
    with quiet("audio", total=8) as advance:
        advance(6)
    (line,), out = capsys.readouterr().err.splitlines(), capsys.readouterr().out
    assert line.startswith("image: 8 of 8 in ") and out == ""
    monkeypatch.setattr(sys, "stderr", None)  # a closed one is no error
    with progress("image", total=8) as advance:
        advance(6)


def test_rich_is_imported_only_for_work():
    code = "import sys, clip_geometry, clip_geometry.progress; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_rows_that_are_read_again_and_again_have_passes(capsys, clock):
    watch = PassProgress("image", rows=1_000_000, row_bytes=1000, clock=clock)
    for seconds, count in ((3, 200_000), (3, 400_000), (3, 400_000), (7, 260_000)):
        clock.now += seconds
        watch(count)
    assert capsys.readouterr().err.splitlines() == [
        "image: pass 1, 0.6 of 1.0 GB, 100 MB/s",
        "image: pass 2, 0.3 of 1.0 GB, 66 MB/s",
    ]


def test_a_pass_that_has_just_ended_is_told_as_whole(capsys, clock):
    """After the last row of a pass it is that pass, all of it, not the next one, of which nothing is read."""
    watch = PassProgress("image", rows=4, row_bytes=10**9, clock=clock)
    for count in (4, 3, 1):
        clock.now += 8
        watch(count)
    assert capsys.readouterr().err.splitlines() == [
        "image: pass 1, 4.0 of 4.0 GB, 500 MB/s",
        "image: pass 2, 3.0 of 4.0 GB, 375 MB/s",
        "image: pass 2, 4.0 of 4.0 GB, 125 MB/s",
    ]
