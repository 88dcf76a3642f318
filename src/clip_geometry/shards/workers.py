"""Batches read ahead by other processes, in order.

A process that decodes never holds up the one that embeds for longer than a batch takes: it ignores Ctrl-C, which the
main process answers, and it ends by itself when the main process was killed, so that the store's lock is free.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread
from typing import Any, TypeVar

import torch

from clip_geometry.progress import note
from clip_geometry.shards.images import ImageReader, ReadBatch

# A forked child needs nothing pickled, and its script no `if __name__ == "__main__"`; elsewhere forking is unsafe.
START = "fork" if sys.platform == "linux" else "spawn"
MOST = 16
TINY = 512  # images that are read sooner than processes start
T = TypeVar("T")
R = TypeVar("R")

_reader: ImageReader  # of a worker


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
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context(start), _begin, (reader, os.getpid()))
    try:
        pool.submit(int)  # forks now, while no thread of ours runs
        yield in_order(lambda batch: _submit(pool, batch), batches, workers + 2, _Results())
    finally:
        pool.shutdown(cancel_futures=True)


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


def _submit(pool: Executor, batch: range) -> "Future[ReadBatch]":
    try:
        return pool.submit(_read, batch)
    except BrokenProcessPool as error:
        broken: Future[ReadBatch] = Future()
        broken.set_exception(error)
        return broken


class _Results:
    """The result, or None where there is an error; a death is told once."""

    told = False

    def __call__(self, future: "Future[ReadBatch]") -> ReadBatch | None:
        try:
            return future.result()
        except BrokenProcessPool:
            if not self.told:
                note("a process that decodes images died, of too little memory perhaps: this one decodes the rest")
            self.told = True
        except Exception:
            pass
        return None


def _begin(reader: ImageReader, parent: int) -> None:
    global _reader
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    _reader = reader


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(1)


def _read(batch: range) -> ReadBatch:
    return _reader(batch)
