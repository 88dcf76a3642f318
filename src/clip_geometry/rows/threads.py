"""Parts of a block in threads of their own: small operations would wait for each other's threads again and again."""

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
U = TypeVar("U")
FEWEST = 1024  # rows a thread, from which on it pays


def in_threads(function: Callable[[Tensor], T], block: Tensor, size: int | None = None) -> Iterable[T]:
    """function of consecutive parts of the rows, in their order: as many parts as torch has threads, or of `size` rows,
    so that what it gives is the same on every machine."""
    count = min(torch.get_num_threads(), len(block) // FEWEST)
    parts = block.chunk(max(count, 1)) if size is None else block.split(size)
    if min(count, len(parts)) < 2:
        return [function(part) for part in parts]
    return list(_pool(count, os.getpid()).map(function, parts))


def spans_in_threads(function: Callable[[slice], T], length: int, fewest: int = FEWEST) -> list[T]:
    """function of consecutive spans that make up range(length), in their order: as many as torch has threads."""
    count = min(torch.get_num_threads(), length // fewest)
    if count < 2:
        return [function(slice(0, length))]
    bounds = [length * k // count for k in range(count + 1)]
    return list(_pool(count, os.getpid()).map(function, map(slice, bounds, bounds[1:])))


def side_by_side(function: Callable[[U], T], items: Sequence[U]) -> Iterator[T]:
    """function of each item, in their order, in as many threads as torch has, each of which gives torch one.

    For many tasks of small matrices, whose decompositions do not gain from several threads. The function must not
    change the filters of `warnings`, which all threads share.
    """
    count = min(torch.get_num_threads(), len(items))
    if count < 2:
        yield from map(function, items)
        return
    futures = [_pool(count, os.getpid()).submit(function, item) for item in items]
    try:
        for future in futures:
            yield future.result()
    finally:  # after an error or an interrupt nothing goes on in the background
        for future in futures:
            future.cancel()
        wait(futures)


@functools.cache
def _pool(count: int, process: int) -> ThreadPoolExecutor:
    """Threads in each of which torch uses one; a forked process has to start its own."""
    pool, all_started, before = ThreadPoolExecutor(count), threading.Barrier(count), torch.get_num_threads()

    def start(_: int) -> None:
        torch.get_num_threads()  # a thread's first question to torch gives it the number that all have
        torch.set_num_threads(1)  # of this thread, and of those that begin later, which is taken back below
        all_started.wait()

    list(pool.map(start, range(count)))
    torch.set_num_threads(before)
    return pool
