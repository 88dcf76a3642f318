import io
import sys

import pytest

from clip_geometry import progress as module
from clip_geometry.progress import Bar, Meter, PassProgress, PlainLines, Settings, duration, note, progress, quiet


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
def clock():
    return Clock()


def lines_of(clock, total, steps, done=0, **settings):
    """Plain lines of work whose units (count) take (seconds) each."""
    lines = PlainLines("image", total=total, done=done, clock=clock)
    for seconds, count in steps:
        clock.now += seconds
        lines(count)
    return lines


def test_plain_lines_come_at_most_every_five_seconds_and_say_how_long_it_takes(capsys, clock):
    lines_of(clock, 1000, ((2, 60), (2, 60), (2, 60), (1, 20), (5, 40)), done=200).finish()
    assert capsys.readouterr().err.splitlines() == [
        "image: 380 of 1000, about 21 s left",
        "image: 440 of 1000, about 28 s left",
        "image: 440 of 1000 in 12.0 s",
    ]


def test_throughput_is_for_those_who_ask(capsys, clock, monkeypatch):
    monkeypatch.setattr(Settings, "verbose", True)
    lines_of(clock, 1000, ((6, 180), (6, 60)), done=200).finish()
    assert capsys.readouterr().err.splitlines() == [
        "image: 380 of 1000, 30.0/s",
        "image: 440 of 1000, about 28 s left, 20.0/s",
        "image: 440 of 1000 in 12.0 s, 20.0/s",
    ]


def test_nothing_done_gives_no_remaining_time(capsys, clock):
    lines_of(clock, 10, ((6, 0),))
    assert capsys.readouterr().err == "image: 0 of 10\n"


def test_short_work_has_no_lines(capsys, clock):
    lines_of(clock, 8, ((1, 4), (2, 4))).finish()
    assert capsys.readouterr().err == ""


def test_a_unit_with_a_name_is_shown_at_once_and_then_every_five_seconds(capsys, clock):
    lines = PlainLines("cells", total=3, clock=clock)
    for name in ("a gap", "a cone", "a map"):
        lines.now(name)
        clock.now += 4
        lines(1)
    lines.finish()
    assert capsys.readouterr().err.splitlines() == [
        "cells: 0 of 3; now a gap",
        "cells: 2 of 3, about 4 s left; now a cone",
        "cells: 3 of 3 in 12.0 s",
    ]


# --- the estimate


def test_what_takes_more_than_a_minute_is_announced_once(capsys, clock, monkeypatch):
    monkeypatch.setattr(Settings, "resumes", True)
    lines_of(clock, 120, ((7, 1), (7, 1), (7, 1)))
    first, second, *rest = capsys.readouterr().err.splitlines()
    assert first == "image: 1 of 120"  # one unit may have been slow at its start
    assert second == "image: about 14 min for the other 118; Ctrl-C stops, and the same command continues"
    assert rest == ["image: 2 of 120, about 14 min left", "image: 3 of 120, about 14 min left"]


def test_a_slow_start_is_not_expected_again(capsys, clock):
    """As of a model that is loaded in the first cell."""
    lines_of(clock, 20, ((21, 1), (1, 1), (5, 1)))
    assert capsys.readouterr().err.splitlines() == ["image: 1 of 20", "image: 3 of 20, about 51 s left"]


def test_one_unit_is_enough_where_it_is_long(capsys, clock):
    lines_of(clock, 5, ((300, 1),))
    assert capsys.readouterr().err.splitlines() == [
        "image: about 20 min for the other 4",
        "image: 1 of 5, about 20 min left",
    ]


@pytest.mark.parametrize("steps", [((7, 4), (7, 4)), ((1, 1), (1, 1))])  # within a minute; too early to say
def test_nothing_else_is_announced(capsys, clock, steps):
    lines_of(clock, 12 if steps[0][0] == 7 else 1000, steps)
    assert "for the other" not in capsys.readouterr().err


def test_an_announcement_inside_another_is_left_out(capsys, clock, monkeypatch):
    monkeypatch.setattr(module, "PlainLines", lambda *given: PlainLines(*given, clock=clock))
    with progress("cells", total=100) as cells:
        for _ in range(3):
            with progress("steps", total=100) as steps:
                for _ in range(2):
                    clock.now += 5
                    steps(1)
            cells(1)
    said = [line for line in capsys.readouterr().err.splitlines() if "for the other" in line]
    assert said == [*["steps: about 8 min for the other 98"] * 2, "cells: about 16 min for the other 98"]
    assert Meter.running == []


def test_shared_work_is_expected_again_only_where_it_came_again(capsys, clock, monkeypatch):
    """An embedding in the first cell serves all others; one in every cell takes its time in every cell."""
    monkeypatch.setattr(module, "PlainLines", lambda *given: PlainLines(*given, clock=clock))

    def left_after(embedded):
        with progress("cells", total=10) as cells:
            for heavy in embedded:
                if heavy:
                    with progress("embedding", total=1, shared=True):
                        clock.now += 100
                clock.now += 2
                cells(1)
            return cells.left()

    assert left_after([True]) is None
    assert left_after([True, False]) == 8 * 2
    assert left_after([True, True]) == pytest.approx(8 * 102)
    assert left_after([True, False, False, True]) == pytest.approx(6 * (2 + 100 * 2 / 4))


def test_measured_states_are_expected_as_often_as_they_are_due(clock):
    steps = PlainLines("steps", total=100, clock=clock)
    for _ in range(4):  # the first states are measured often, the rest five times
        clock.now += 3
        steps.beside(3, again=5 / 96)
        clock.now += 1
        steps(1)
    assert steps.left() == pytest.approx(96 * 1 + 5 * 3)


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
    with progress("image", total=8, done=2) as advance:
        advance.now("isoscore[unbiased]")
        advance(5)
    assert "image" in terminal.getvalue() and "7 of 8" in terminal.getvalue()
    assert "now isoscore[unbiased]" in terminal.getvalue()  # which is no markup
    assert Bar.display is None


def test_bars_share_a_display_and_a_note_stands_above_them(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("cells", total=2) as outer:
        with progress("image", total=8) as inner:
            inner(3)
            assert Bar.display is not None and len(Bar.display.tasks) == 2
            note("a remark")
        assert [task.description for task in Bar.display.tasks] == ["cells"]
        outer(2)
    assert "a remark\n" in terminal.getvalue() and "2 of 2" in terminal.getvalue()


def test_an_error_closes_the_display(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(KeyboardInterrupt), progress("cells", total=2), progress("image", total=8):
        raise KeyboardInterrupt
    assert Bar.display is None and Meter.running == []


# --- elsewhere


def test_elsewhere_it_is_lines_on_stderr(capsys, monkeypatch):
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    with progress("image", total=8, done=2) as advance:
        advance(6)
    output = capsys.readouterr()
    assert output.err.startswith("image: 8 of 8 in ") and output.out == ""


def test_an_error_passes_through_without_a_last_line(capsys, monkeypatch):
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    with pytest.raises(KeyboardInterrupt), progress("image", total=8):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


def test_quiet_is_quiet(capsys):
    with quiet("image", total=8) as advance:
        advance(6)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("verbose", [False, True])
def test_rows_that_are_read_again_and_again_have_passes(capsys, clock, monkeypatch, verbose):
    monkeypatch.setattr(Settings, "verbose", verbose)
    watch = PassProgress("image", rows=1_000_000, row_bytes=1000, clock=clock)
    for seconds, count in ((3, 200_000), (3, 400_000), (3, 400_000), (7, 260_000)):
        clock.now += seconds
        watch(count)
    assert capsys.readouterr().err.splitlines() == [
        "image: pass 1, 0.6 of 1.0 GB, about 4 s left in it" + verbose * ", 100 MB/s",
        "image: pass 2, 0.3 of 1.0 GB, about 11 s left in it" + verbose * ", 66 MB/s",
    ]


def test_a_pass_that_has_just_ended_is_told_as_whole(capsys, clock):
    """After the last row of a pass it is that pass, all of it, not the next one, of which nothing is read."""
    watch = PassProgress("image", rows=4, row_bytes=10**9, clock=clock)
    for count in (4, 3, 1):
        clock.now += 8
        watch(count)
    assert capsys.readouterr().err.splitlines() == [
        "image: pass 1, 4.0 of 4.0 GB",
        "image: pass 2, 3.0 of 4.0 GB, about 3 s left in it",
        "image: pass 2, 4.0 of 4.0 GB",
    ]


def test_the_command_line_leaves_the_settings_as_they_were(monkeypatch, tmp_path):
    from clip_geometry.cli import main

    monkeypatch.setattr(sys, "argv", ["clip-geometry", "-v", "run", str(tmp_path / "none.yaml")])
    with pytest.raises(SystemExit):
        main()
    assert (Settings.verbose, Settings.resumes) == (False, False)
