"""Progress of long work: a bar on a terminal, a plain line every few seconds elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

from clip_geometry.registry import printable

INTERVAL = 5.0  # seconds between plain lines

Advance = Callable[[int], None]


class Progress(Protocol):
    """`with progress("image", total=512, done=128) as advance:` and then `advance(k)` for every k done."""

    def __call__(self, description: str, total: int, done: int = 0) -> AbstractContextManager[Advance]: ...


def note(message: str) -> None:
    """Prints one line for the user on stderr, because stdout is for results; nothing if stderr is closed."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(printable(message), file=sys.stderr, flush=True)


@contextmanager
def progress(description: str, total: int, done: int = 0) -> Iterator[Advance]:
    """Shows a rich bar if stderr is a terminal, plain lines otherwise. `done` of `total` were finished before."""
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(description, total=total, completed=done)
            yield lambda count: bar.advance(task, count)
    else:
        lines = PlainLines(description, total, done)
        yield lines.advance
        lines.finish()


@contextmanager
def quiet(description: str, total: int, done: int = 0) -> Iterator[Advance]:
    """Shows nothing."""
    yield lambda count: None


class PassProgress:
    """Throughput of rows that are read in several passes: `image: pass 3, 1.2 of 4.0 GB, 410 MB/s`.

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
        note(f"{self.description}: pass {passes + 1}, {read:.1f} of {size:.1f} GB, {rate / 1e6:.0f} MB/s")
        self.last, self.before = now, self.done


class PlainLines:
    """Progress as text: `image: 128 of 512, 31.2/s, 12 s left`, at most every INTERVAL seconds, and a line at the end.

    The rate counts only what this process did.
    """

    def __init__(self, description: str, total: int, done: int, clock: Callable[[], float] = time.monotonic):
        self.description, self.total, self.done, self.clock = description, total, done, clock
        self.before = done
        self.begin = self.last = clock()

    def advance(self, count: int) -> None:
        self.done += count
        now = self.clock()
        if now - self.last < INTERVAL:
            return
        self.last = now
        rate = (self.done - self.before) / (now - self.begin)
        left = f", {(self.total - self.done) / rate:.0f} s left" if rate else ""
        note(f"{self.description}: {self.done} of {self.total}, {rate:.1f}/s{left}")

    def finish(self) -> None:
        note(f"{self.description}: {self.done} of {self.total} in {self.clock() - self.begin:.1f} s")
