"""Progress of long work: what, how far, how long. A bar on a terminal, a plain line every few seconds elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, ClassVar, Protocol

from clip_geometry.registry import printable

if TYPE_CHECKING:
    import rich.progress

INTERVAL = 5.0  # seconds between plain lines, and before an estimate is trusted
LONG = 60.0  # seconds; work that takes longer is announced

Advance = Callable[[int], None]


class Progress(Protocol):
    """`with progress("image", total=512, done=128) as advance:` and then `advance(k)` for every k done."""

    def __call__(self, description: str, total: int, done: int = 0) -> AbstractContextManager[Advance]: ...


class Settings:
    """Of this process; the command line sets them.

    Attributes:
        verbose: Show throughput.
        resumes: Whether the same command continues after an interruption, which an announcement says.
    """

    verbose = False
    resumes = False


def note(message: str) -> None:
    """Prints one line for the user on stderr, because stdout is for results; nothing if stderr is closed."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(printable(message), file=sys.stderr, flush=True)


def detail(message: str) -> None:
    """A note for --verbose."""
    if Settings.verbose:
        note(message)


def duration(seconds: float) -> str:
    """A time as a person says it.

    Example:
        >>> [duration(each) for each in (0.4, 12.4, 100, 840, 7900, 200_000)]
        ['1 s', '12 s', '2 min', '14 min', '2 h 10 min', '2 days']
    """
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, tens = divmod(round(minutes / 10), 6)
    return f"{hours} h" + (f" {10 * tens} min" if tens else "") if hours < 48 else f"{round(hours / 24)} days"


class Meter:
    """How far some work is and how long the rest takes; an instance is called with the number of units just done.

    The rate counts only what this process did.

    Args:
        what: The work.
        total: Its units.
        done: The units that were finished before.
        clock: The time in seconds.
    """

    running: ClassVar["list[Meter]"] = []  # from the outside in

    def __init__(self, what: str, total: int, done: int = 0, clock: Callable[[], float] = time.monotonic):
        self.what, self.total, self.done, self.before, self.clock = what, total, done, done, clock
        self.begin = self.last = clock()
        self.unit, self.announced, self.printed = "", False, False
        self.besides: dict[int, float] = {}  # number of units done → seconds of other work before the next one
        self.again = 0.0  # how often such work is expected for each of the other units

    def __call__(self, count: int) -> None:
        self.done += count
        left = self.left()
        longest = self.clock() - self.begin >= INTERVAL and left is not None and left > LONG
        if longest and not any(each.announced for each in (self, *Meter.running)):
            self.announced = True
            again = "; Ctrl-C stops, and the same command continues" if Settings.resumes else ""
            note(f"{self.what}: about {duration(left or 0)} for the other {self.total - self.done}{again}")
        self.show()

    def now(self, unit: str) -> None:
        """Says what the next unit is."""
        self.unit = unit
        self.show()

    def beside(self, seconds: float, again: float) -> None:
        """Counts work that is not part of every unit, so that it is not expected as often.

        Args:
            seconds: How long it took.
            again: How often it is expected for each of the units that are not done.
        """
        self.besides[self.done] = self.besides.get(self.done, 0.0) + seconds
        self.again = again

    def left(self) -> float | None:
        """Seconds for the rest, None where nothing is done yet."""
        if self.done == self.before:
            return None
        beside = sum(self.besides.values())
        of_unit = (self.clock() - self.begin - beside) / (self.done - self.before)
        return (self.total - self.done) * (of_unit + self.again * beside / max(len(self.besides), 1))

    def words(self) -> str:
        """`about 12 s left`, with the rate if asked for; "" where neither is known."""
        left, words = self.left(), []
        if left is not None and self.done < self.total:
            words.append(f"about {duration(left)} left")
        if Settings.verbose:
            words.append(f"{(self.done - self.before) / max(self.clock() - self.begin, 1e-9):.1f}/s")
        return ", ".join(words)

    # --- where it is shown

    def show(self) -> None:
        """After every change."""

    def finish(self) -> None:
        """After the last one, unless there was an error."""

    def close(self) -> None:
        """In any case."""


class PlainLines(Meter):
    """Progress as text: `image: 128 of 512, about 12 s left`, at most every INTERVAL seconds; the first unit that has a
    name is shown at once. Work that takes less has no line."""

    def show(self) -> None:
        now, first = self.clock(), bool(self.unit) and not self.printed
        if self.done < self.total and (first or now - self.last >= INTERVAL):
            self.last, self.printed = now, True
            unit = f"; now {self.unit}" if self.unit else ""
            note(", ".join(filter(None, (f"{self.what}: {self.done} of {self.total}", self.words()))) + unit)

    def finish(self) -> None:
        if self.printed or self.clock() - self.begin >= INTERVAL:
            seconds = self.clock() - self.begin
            rate = f", {(self.done - self.before) / max(seconds, 1e-9):.1f}/s" if Settings.verbose else ""
            took = f"{seconds:.1f} s" if seconds < LONG else duration(seconds)
            note(f"{self.what}: {self.done} of {self.total} in {took}{rate}")


class Bar(Meter):
    """A line of the one display that a terminal has; bars inside others vanish when they are full."""

    display: "rich.progress.Progress | None" = None

    def __init__(self, what: str, total: int, done: int = 0):
        super().__init__(what, total, done)
        self.outermost = Bar.display is None
        if Bar.display is None:
            Bar.display = _display()
            Bar.display.start()
        self.task = Bar.display.add_task(what, total=total, completed=done, meter=self)

    def show(self) -> None:
        if Bar.display is not None:
            Bar.display.update(self.task, completed=self.done)

    def close(self) -> None:
        if Bar.display is None:
            return
        if self.outermost:
            Bar.display.stop()
            Bar.display = None
        else:
            Bar.display.remove_task(self.task)


def _display() -> "rich.progress.Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Words(ProgressColumn):
        def render(self, task: Task) -> Text:
            meter: Meter = task.fields["meter"]
            unit = f"now {meter.unit}" if meter.unit and meter.done < meter.total else ""
            return Text("; ".join(filter(None, (meter.words(), unit))))

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.completed} of {task.total}", markup=False),
        Words(table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=Console(stderr=True),
    )


@contextmanager
def progress(description: str, total: int, done: int = 0, *, shared: bool = False) -> Iterator[Meter]:
    """Shows a bar if stderr is a terminal, plain lines otherwise, and announces what takes more than a minute.

    Args:
        description: The work, as a person calls it.
        total: The number of its units.
        done: How many of them were finished before.
        shared: Whether it serves later units of the work around it, too, as an embedding that all measures share: there
            it is expected again only where it has happened in several units.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    meter = Bar(description, total, done) if terminal else PlainLines(description, total, done)
    around = Meter.running[-1] if Meter.running else None
    Meter.running.append(meter)
    try:
        yield meter
        meter.finish()
    finally:
        Meter.running.remove(meter)
        meter.close()
        if shared and around is not None:
            units = len({*around.besides, around.done})
            around.beside(meter.clock() - meter.begin, units / (around.done - around.before + 1) if units > 1 else 0)


@contextmanager
def quiet(description: str, total: int, done: int = 0) -> Iterator[Advance]:
    """Shows nothing."""
    yield lambda count: None


class PassProgress:
    """How far rows are that are read in several passes: `image: pass 3, 1.2 of 4.0 GB, about 7 s left in it`.

    Call it with the number of rows after each block. It prints at most one line every INTERVAL seconds.
    """

    def __init__(self, description: str, rows: int, row_bytes: int, clock: Callable[[], float] = time.monotonic):
        self.description, self.rows, self.row_bytes, self.clock = description, rows, row_bytes, clock
        self.done, self.before, self.last = 0, 0, clock()

    def __call__(self, count: int) -> None:
        self.done += count
        now = self.clock()
        if now - self.last < INTERVAL:
            return
        rate = (self.done - self.before) * self.row_bytes / (now - self.last)
        passes, rest = divmod(max(self.done - 1, 0), self.rows)
        read, size = ((rows * self.row_bytes) / 1e9 for rows in (rest + 1, self.rows))
        left = f", about {duration((size - read) * 1e9 / rate)} left in it" if rate and read < size else ""
        speed = f", {rate / 1e6:.0f} MB/s" if Settings.verbose else ""
        note(f"{self.description}: pass {passes + 1}, {read:.1f} of {size:.1f} GB{left}{speed}")
        self.last, self.before = now, self.done
