import io
import sys

import pytest

from clip_geometry.progress import PassProgress, PlainLines, progress, quiet


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_plain_lines_come_at_most_every_five_seconds_and_give_rate_and_remaining_time(capsys):
    now = [100.0]
    lines = PlainLines("image", total=1000, done=200, clock=lambda: now[0])
    for seconds, count in ((2, 60), (2, 60), (2, 60), (1, 20), (5, 40)):
        now[0] += seconds
        lines.advance(count)
    lines.finish()
    assert capsys.readouterr().err.splitlines() == [
        "image: 380 of 1000, 30.0/s, 21 s left",
        "image: 440 of 1000, 20.0/s, 28 s left",
        "image: 440 of 1000 in 12.0 s",
    ]


def test_nothing_done_gives_no_remaining_time(capsys):
    now = [0.0]
    lines = PlainLines("text", total=10, done=0, clock=lambda: now[0])
    now[0] = 6.0
    lines.advance(0)
    assert capsys.readouterr().err == "text: 0 of 10, 0.0/s\n"


def test_a_terminal_gets_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("image", total=8, done=2) as advance:
        advance(5)
    assert "image" in terminal.getvalue() and "7/8" in terminal.getvalue()


def test_elsewhere_it_is_lines_on_stderr(capsys):
    with progress("image", total=8, done=2) as advance:
        advance(6)
    output = capsys.readouterr()
    assert output.err.startswith("image: 8 of 8 in ") and output.out == ""


def test_an_error_passes_through_without_a_last_line(capsys):
    with pytest.raises(KeyboardInterrupt), progress("image", total=8):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


def test_quiet_is_quiet(capsys):
    with quiet("image", total=8) as advance:
        advance(6)
    assert capsys.readouterr() == ("", "")


def test_rows_that_are_read_again_and_again_have_passes_and_a_throughput(capsys):
    now = [0.0]
    watch = PassProgress("image", rows=1_000_000, row_bytes=1000, clock=lambda: now[0])
    for seconds, count in ((3, 200_000), (3, 400_000), (3, 400_000), (7, 260_000)):
        now[0] += seconds
        watch(count)
    assert capsys.readouterr().err.splitlines() == [
        "image: pass 1, 0.6 of 1.0 GB, 100 MB/s",
        "image: pass 2, 0.3 of 1.0 GB, 66 MB/s",
    ]


def test_a_pass_that_has_just_ended_is_told_as_whole(capsys):
    """After the last row of a pass it is that pass, all of it, not the next one, of which nothing is read."""
    now = [0.0]
    watch = PassProgress("image", rows=4, row_bytes=10**9, clock=lambda: now[0])
    for count in (4, 3, 1):
        now[0] += 8
        watch(count)
    assert capsys.readouterr().err.splitlines() == [
        "image: pass 1, 4.0 of 4.0 GB, 500 MB/s",
        "image: pass 2, 3.0 of 4.0 GB, 375 MB/s",
        "image: pass 2, 4.0 of 4.0 GB, 125 MB/s",
    ]
