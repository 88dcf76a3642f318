"""The engine on a Ray cluster, or on the processors of this machine where there is none.

It uses Ray's tasks and actors, not Ray Data: a shard results in files, of which only a record comes back, and a span
results in one sum. There are no rows between two steps for Ray Data to hold, split and pass on, and it would not start
batches at the beginnings of shards, on which their bytes depend.
"""

import logging
import os
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from clip_geometry.data.base import Side
from clip_geometry.embedding.engines.actors import ShardActors
from clip_geometry.embedding.engines.base import Bar, Engine, Record, ShardMaker
from clip_geometry.embedding.engines.spans import aggregate
from clip_geometry.embedding.store import Shard
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.registry import InputError

TIMEOUT = 10.0  # seconds
LOCAL = "local"  # Ray's name for a cluster of this machine's processors, which it starts


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
    try:
        import ray
    except ImportError:
        raise InputError('engine ray needs Ray, which is not installed: pip install "clip-geometry[scale]"') from None
    begun = not ray.is_initialized()
    if begun:
        _connect(ray, address_of(address))
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


def _connect(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        if port.isdecimal() and "/" not in host:  # Ray itself would try for minutes before it reports that none answers
            socket.create_connection((host, int(port)), timeout=TIMEOUT).close()
        local = {"include_dashboard": False} if address == LOCAL else {}
        ray.init(address=address, logging_level=logging.ERROR, **local)
    except (OSError, RuntimeError, ValueError, ImportError, ray.exceptions.RayError) as error:
        raise InputError(f"no Ray cluster answers at {address} ({root_cause(error)}): ray status tells") from None


def root_cause(error: BaseException) -> str:
    """The message of the first error: Ray reports a refused token, for example, as a failed connection whose text is a
    traceback."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip()
    return " ".join((text.splitlines()[-1] if "Traceback" in text else text).split())[:200]
