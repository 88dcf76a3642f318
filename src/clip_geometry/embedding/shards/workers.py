"""Batches read ahead by other processes, in order.

A process that decodes never holds up the one that embeds: it ignores Ctrl-C, which the main process answers, it is
killed when nobody reads any more, and it ends by itself when the main process was killed, so that the store's lock is
free. Each has a pipe of its own, which ends with it: in a queue for all, half of what a killed one was sending would
stop everyone.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Lock, Thread, current_thread, main_thread
from typing import Any, TypeVar

import torch

from clip_geometry.embedding.shards.images import ImageReader, ReadBatch
from clip_geometry.progress import note

# A forked child needs nothing pickled, and its script no `if __name__ == "__main__"`; elsewhere forking is unsafe.
START = "fork" if sys.platform == "linux" else "spawn"
MOST = 16
TINY = 512  # images that are read sooner than processes start
T = TypeVar("T")
R = TypeVar("R")


def default_workers(images: int) -> int:
    """0 for few images, and in a process that may have no children; else one less than the cores, at most MOST."""
    if images < TINY or multiprocessing.current_process().daemon:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores - 1, MOST)


@contextmanager
def reading_ahead(
    reader: ImageReader, batches: Sequence[range], workers: int, start: str = START
) -> Iterator[Iterator[ReadBatch | None]]:
    """Iterates over what `reader` makes of the batches. None: the process could not, so the caller reads that batch
    itself, where the same error rises in plain sight. `workers` + 2 batches are read or waiting at any time."""
    crew, threads = _Crew(), ThreadPoolExecutor(workers, "ask-readers")
    try:
        with _interrupt_later():
            crew.begin(reader, workers, start)  # forks now, while no thread of ours runs
        yield in_order(lambda batch: threads.submit(crew.read, batch), batches, workers + 2)
    finally:
        crew.end()
        threads.shutdown(cancel_futures=True)


def can_be_sent(reader: ImageReader, start: str = START) -> bool:
    """Whether a process can be given the reader: one that is forked has it, another must unpickle it."""
    if start == "fork":
        return True
    if reader.preprocess is not None:  # it would bring its model along
        return False
    try:
        pickle.dumps(reader)
    except Exception:  # pickle raises PicklingError, AttributeError, TypeError, …
        return False
    return True


def in_order(
    submit: Callable[[T], "Future[R]"],
    items: Iterable[T],
    depth: int,
    result: Callable[["Future[R]"], Any] | None = None,
) -> Iterator[Any]:
    """The results of the submitted items, one by one; `depth` more are under way."""
    waiting: deque[Future[R]] = deque()
    get = result or (lambda future: future.result())
    for item in items:
        waiting.append(submit(item))
        if len(waiting) > depth:
            yield get(waiting.popleft())
    while waiting:
        yield get(waiting.popleft())


class _Crew:
    """Processes that read, and the ends of their pipes, each asked by one thread at a time."""

    def __init__(self) -> None:
        self.processes: list[Any] = []
        self.idle: SimpleQueue[Connection | None] = SimpleQueue()  # None: there is no process any more
        self.left, self.lock, self.ended = 0, Lock(), False

    def begin(self, reader: ImageReader, count: int, start: str) -> None:
        context: Any = multiprocessing.get_context(start)
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there, reader, os.getpid()), daemon=True)
            process.start()
            there.close()  # so that only the process has it
            self.processes.append(process)
            self.left += 1
            self.idle.put(here)

    def read(self, batch: range) -> ReadBatch | None:
        connection, answer = self.idle.get(), None
        try:
            if connection is not None:
                connection.send(batch)
                answer = connection.recv()
        except Exception:  # the pipe has ended, or there is no memory for what comes out of it
            self._lose()
            return None
        self.idle.put(connection)
        return answer

    def _lose(self) -> None:
        with self.lock:
            self.left -= 1
            if not self.left:
                self.idle.put(None)
            if not self.ended:
                rest = f"the others ({self.left}) go on" if self.left else "this one decodes the rest"
                note(f"a process that decodes images died, of too little memory perhaps: {rest}")

    def end(self) -> None:
        """At once: they have nothing to finish."""
        self.ended = True
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Ctrl-C rises when the block ends: what Python does around a fork would swallow it."""
    if current_thread() is not main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _work(connection: Connection, reader: ImageReader, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    with suppress(EOFError, OSError):  # the main process is gone
        while True:
            connection.send(_read(reader, connection.recv()))


def _read(reader: ImageReader, batch: range) -> ReadBatch | None:
    try:
        return reader(batch)
    except Exception:
        return None


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(1)
