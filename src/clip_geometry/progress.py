"""Progress of long tasks on stderr: a rich progress bar in a terminal, a plain line every few seconds elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from clip_geometry.registry import printable

if TYPE_CHECKING:
    import rich.progress

INTERVAL = 5.0  # seconds between plain lines

Advance = Callable[[int], None]


class Progress(Protocol):
    """A progress display: `with progress("image", total=512, done=128) as advance:`, then `advance(k)` for k units."""

    def __call__(self, description: str, total: int, done: int = 0) -> AbstractContextManager[Advance]: ...


def note(message: str) -> None:
    """Print a line for the user on stderr, because stdout is for results. Prints nothing if stderr is closed."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(printable(message), file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return a time in words.

    Example:
        >>> [duration(seconds) for seconds in (0.4, 12.4, 100, 840, 7900, 200_000)]
        ['1 s', '12 s', '2 min', '14 min', '2 h 10 min', '2 days']
    """
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    hours, tens = divmod(round(seconds / 600), 6)  # hours, and tens of minutes
    if hours >= 48:
        return f"{round(hours / 24)} days"
    return f"{hours} h {10 * tens} min" if tens else f"{hours} h"


class Work:
    """A task of a display, called with the number of units just completed. It prints lines if the display is disabled.

    rich computes the rate without the first unit, which may include loading a model.
    """

    def __init__(self, display: "rich.progress.Progress", description: str, total: int, done: int):
        self.display = display
        self.id = display.add_task(description, total=total, completed=done, more="")
        self.task = display.tasks[-1]
        self.unit = ""
        self.last = display.get_time()
        self.printed = False

    def __call__(self, count: int) -> None:
        self.display.advance(self.id, count)
        self._show()

    def now(self, unit: str) -> None:
        """Show the name of the next unit, such as the cell that is being computed."""
        self.unit = unit
        self._show()

    def _show(self) -> None:
        """Update the bar and, from time to time, print a line with the remaining time."""
        unit = f"; now {self.unit}" if self.unit else ""
        self.display.update(self.id, more=(self._rate() + unit)[2:])
        time = self.display.get_time()
        is_due = time - self.last >= INTERVAL or (self.unit and not self.printed)
        if is_due and not self.task.finished:
            seconds = self.task.time_remaining
            remaining = f", about {duration(seconds)} left" if seconds else ""
            self.last = time
            self._line(remaining + self._rate() + unit)

    def finish(self) -> None:
        """Print a final line, unless the work was short."""
        seconds = self.task.elapsed or 0.0
        if self.printed or seconds >= INTERVAL:
            self._line(f" in {duration(seconds)}{self._rate()}")

    def _rate(self) -> str:
        return f", {self.task.speed:.1f}/s" if self.task.speed else ""

    def _line(self, more: str) -> None:
        if self.display.disable:
            self.printed = True
            note(f"{self.task.description}: {self.task.completed} of {self.task.total}{more}")


_running: list[Work] = []  # the nested tasks of one display, outermost first


@contextmanager
def progress(description: str, total: int, done: int = 0) -> Iterator[Work]:
    """Show a progress bar if stderr is a terminal, plain lines otherwise. Nested bars vanish when they end.

    Args:
        description: Name of the work, as shown to the user.
        total: Number of units.
        done: Number of units that were finished before.
    """
    outermost = not _running
    display = _display() if outermost else _running[0].display
    work = Work(display, description, total, done)
    _running.append(work)
    try:
        display.start()
        yield work
        work.finish()
    finally:
        _running.remove(work)
        if outermost:
            display.stop()
        else:
            display.remove_task(work.id)


def _display() -> "rich.progress.Progress":
    """Return the progress bar on stderr; it is hidden if stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(" of "),
        TimeRemainingColumn(),
        TextColumn(
            "{task.fields[more]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
        ),
        console=Console(stderr=True),
        expand=True,
        get_time=time.monotonic,
        speed_estimate_period=3600,
        disable=sys.stderr is None or not sys.stderr.isatty(),
    )


@contextmanager
def quiet(description: str, total: int, done: int = 0) -> Iterator[Advance]:
    """Show no progress; a drop-in replacement for `progress`."""
    yield lambda count: None


class PassProgress:
    """Progress of reading rows in several passes; call it with the number of rows after each block.

    Prints a line every INTERVAL seconds, such as `image: pass 3, 1.2 of 4.0 GB`.
    """

    def __init__(self, description: str, rows: int, row_bytes: int, clock: Callable[[], float] = time.monotonic):
        self.description = description
        self.rows = rows
        self.row_bytes = row_bytes
        self.clock = clock
        self.done = 0
        self.last_done = 0  # `done` when the last line was printed, at the time `last`
        self.last = clock()

    def __call__(self, count: int) -> None:
        self.done += count
        seconds = self.clock() - self.last
        if seconds >= INTERVAL:
            speed = (self.done - self.last_done) * self.row_bytes / seconds / 1e6
            passes, row = divmod(max(self.done - 1, 0), self.rows)
            read = (row + 1) * self.row_bytes / 1e9
            size = self.rows * self.row_bytes / 1e9
            note(f"{self.description}: pass {passes + 1}, {read:.1f} of {size:.1f} GB, {speed:.0f} MB/s")
            self.last = self.clock()
            self.last_done = self.done
