"""The engine on a Ray cluster, or on the processors of this machine where there is none.

It uses Ray's tasks and actors, not Ray Data: a shard results in files, of which only a record comes back, and a span
results in one sum. There are no rows between two steps for Ray Data to hold, split and pass on, and it would not start
batches at the beginnings of shards, on which their bytes depend.
"""

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch import Tensor

from clip_geometry.data.base import Side
from clip_geometry.embedding.engines.actors import ShardActors
from clip_geometry.embedding.engines.base import Bar, Engine, Record, ShardMaker
from clip_geometry.embedding.engines.jobs import note_waiting, result, send
from clip_geometry.embedding.store import Shard
from clip_geometry.geometry._core.streamed import Accumulate, StreamedRows, aggregate_blocks
from clip_geometry.progress import PassProgress
from clip_geometry.registry import InputError, library

TIMEOUT = 10.0  # seconds
LOCAL = "local"  # Ray's name for a cluster of this machine's processors, which it starts
MAX_SPANS = 1024  # a worker that dies has little to do again
MIN_BYTES = 2**25  # of a span's rows as stored: its sum takes time to come back as well
AHEAD = 2  # spans per processor under way: memory holds a few sums, not those of all spans
RETRIES = 3  # of a span whose worker died: what kills four of them will kill the next


class RayCluster:
    name = "ray"

    def __init__(self, ray: Any):
        self.actors = ShardActors(ray)
        self.ray = ray
        self.spent: dict[str, Any] = {}

    def __repr__(self) -> str:
        return "<Ray engine>"

    def shards(self, maker: ShardMaker, side: Side, shards: Sequence[Shard], bar: Bar) -> Generator[Record, None, None]:
        with bar as advance:
            yield from self.actors.records(maker, side.modality, shards, advance)
        self.spent[side.modality] = {"engine": self.name, "actors": len(self.actors)}

    def stream(self, rows: StreamedRows) -> StreamedRows:
        return rows.aggregated_by(lambda *job: aggregate(self.ray, *job))


@contextmanager
def ray_cluster(address: str | None = None) -> Iterator[Engine]:
    """Uses the cluster to which this process is connected, or the one at the address or RAY_ADDRESS; otherwise starts
    one of this machine's processors, which ends with the block. InputError if Ray is missing or nothing answers."""
    ray = library("ray", "ray", "engine ray")
    begun = not ray.is_initialized()
    if begun:
        address = address_of(address)
        host, _, port = address.rpartition(":")
        try:
            if port.isdecimal() and "/" not in host:  # Ray itself would try for minutes before it reports none answers
                socket.create_connection((host, int(port)), timeout=TIMEOUT).close()
            local = {"include_dashboard": False} if address == LOCAL else {}
            ray.init(address=address, logging_level=logging.ERROR, **local)
        except (OSError, RuntimeError, ValueError, ImportError, ray.exceptions.RayError) as error:
            raise InputError(f"no Ray cluster answers at {address} ({root_cause(error)}): ray status tells") from None
    cluster = RayCluster(ray)
    try:
        yield cluster
    finally:
        if begun:
            ray.shutdown()
        cluster.actors.end(disconnected=begun)


def address_of(address: str | None) -> str:
    """RAY_ADDRESS where no other address is given, as in Ray itself, but never a cluster that nobody named."""
    if address is None or address == "auto":
        return os.environ.get("RAY_ADDRESS") or address or LOCAL
    return address


def root_cause(error: BaseException) -> str:
    """The message of the first error: Ray reports a refused token, for example, as a failed connection whose text is a
    traceback."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip()
    return " ".join((text.splitlines()[-1] if "Traceback" in text else text).split())[:200]


def aggregate(
    ray: Any,
    x: StreamedRows,
    zero: Callable[[], Any],
    accumulate: Accumulate,
    merge: Callable[[Any, Any], Any],
    size: int,
    along: Tensor | None,
) -> Any:
    """`x.aggregate` with these arguments. Spans, and so the sums bit for bit, do not depend on the number of workers.
    A span whose worker died is read again by another one."""
    row_bytes = x.shape[1] * x.stored.itemsize
    sent = send(ray, (x, zero, accumulate, size), f"the rows of {x.name}")
    task = _task(ray).options(max_retries=RETRIES, num_cpus=1)
    advance = PassProgress(x.name, len(x), row_bytes)
    total, ahead = None, AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting, under_way = deque(spans_of(len(x), size, row_bytes)), deque()
    while waiting or under_way:
        while waiting and len(under_way) <= ahead:
            span = waiting.popleft()
            # a copy: pickle would take the memory of all rows, of which a slice is a view
            own = None if along is None else along[span.start : span.stop].clone()
            under_way.append((span, task.remote(sent, span, own)))
        span, job = under_way.popleft()
        if span.start == 0:
            note_waiting(ray, [job])
        worker = f"the worker of rows {span.start} to {span.stop} of {x.name}"
        part = result(ray, job, worker, RETRIES + 1, "give it more memory")
        total = part if span.start == 0 else merge(total, part)
        advance(len(span))
    return total


def spans_of(rows: int, size: int, row_bytes: int) -> list[range]:
    """Spans of whole blocks of `size` rows, whose sums are those of one machine."""
    step = max(-(-rows // (MAX_SPANS * size)), -(-MIN_BYTES // (size * row_bytes))) * size
    return [range(start, min(start + step, rows)) for start in range(0, rows, step)]


@cache
def _task(ray: Any) -> Any:
    """Made once: Ray keeps each remote function that a process makes."""

    def sum_span(job: tuple, span: range, along: Tensor | None) -> Any:
        x, zero, accumulate, size = job
        return aggregate_blocks(x, zero, accumulate, size, along, span)

    return ray.remote(sum_span)
