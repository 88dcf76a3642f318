"""Parallel work on parts of a block in threads with one torch thread each, so that small operations do not wait."""

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
FEWEST = 1024  # fewest rows per thread for threads to pay off


def in_threads(function: Callable[[Tensor], T], block: Tensor, size: int | None = None) -> Iterable[T]:
    """Return `function` of consecutive parts of the rows, in order.

    There are as many parts as torch has threads. With `size`, the parts have `size` rows, so that results are the same
    on every machine.
    """
    count = min(torch.get_num_threads(), len(block) // FEWEST)
    parts = block.chunk(max(count, 1)) if size is None else block.split(size)
    if min(count, len(parts)) < 2:
        return [function(part) for part in parts]
    return list(_pool(count, os.getpid()).map(function, parts))


def spans_in_threads(function: Callable[[slice], T], length: int, fewest: int = FEWEST) -> list[T]:
    """Return `function` of consecutive spans of range(length), in order, as many as torch has threads."""
    count = min(torch.get_num_threads(), length // fewest)
    if count < 2:
        return [function(slice(0, length))]
    bounds = [length * k // count for k in range(count + 1)]
    return list(_pool(count, os.getpid()).map(function, map(slice, bounds, bounds[1:])))


def side_by_side(function: Callable[[U], T], items: Sequence[U]) -> Iterator[T]:
    """Yield `function` of each item, in order, using as many threads as torch has, each with a single torch thread.

    Use it for many tasks with small matrices, whose decompositions do not benefit from several threads. The function
    must not change the filters of `warnings`, which all threads share.
    """
    count = min(torch.get_num_threads(), len(items))
    if count < 2:
        yield from map(function, items)
        return
    futures = [_pool(count, os.getpid()).submit(function, item) for item in items]
    try:
        for future in futures:
            yield future.result()
    finally:  # stop background work after an error or an interrupt
        for future in futures:
            future.cancel()
        wait(futures)


@functools.cache
def _pool(count: int, process: int) -> ThreadPoolExecutor:
    """Return threads that each use one torch thread. A forked process needs a pool of its own, hence `process`."""
    pool = ThreadPoolExecutor(count)
    all_started = threading.Barrier(count)
    before = torch.get_num_threads()

    def start(_: int) -> None:
        torch.get_num_threads()  # the first query in a thread initializes its thread count to the global one
        torch.set_num_threads(1)  # applies to this thread and to threads started later; undone below
        all_started.wait()

    list(pool.map(start, range(count)))
    torch.set_num_threads(before)
    return pool
