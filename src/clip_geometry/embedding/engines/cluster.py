"""The engine on a Ray cluster, or on the processors of this machine where there is none.

Ray's tasks and actors, not its Data library: a shard's result is files, of which only a record comes back, and a span's
is one sum. There are no rows between two steps that Data would hold, split anew and pass on, and it would
cut batches otherwise than at the shards' beginnings, on which their bytes depend.
"""

import logging
import os
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from clip_geometry.data.base import Side
from clip_geometry.embedding.engines.actors import ShardActors
from clip_geometry.embedding.engines.base import Engine, Record, ShardMaker, Shown
from clip_geometry.embedding.engines.spans import aggregate
from clip_geometry.embedding.store import Shard
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.registry import InputError

KNOCK = 10.0  # seconds
HERE = "local"  # Ray's name for a cluster of this machine's processors, which it starts


class RayCluster:
    name = "ray"

    def __init__(self, ray: Any):
        self.actors = ShardActors(ray)
        self.ray = ray
        self.spent: dict[str, Any] = {}

    def shards(
        self, maker: ShardMaker, side: Side, shards: Sequence[Shard], shown: Shown
    ) -> Generator[Record, None, None]:
        with shown as advance:
            yield from self.actors.records(maker, side.modality, shards, advance)
        self.spent[side.modality] = {"engine": self.name, "actors": len(self.actors)}

    def stream(self, rows: StreamedRows) -> StreamedRows:
        return rows.aggregated_by(lambda *job: aggregate(self.ray, *job))


@contextmanager
def ray_cluster(address: str | None = None) -> Iterator[Engine]:
    """The cluster this process is connected to, or the one at the address or RAY_ADDRESS; otherwise one of this
    machine's processors, which ends with the `with`. Raises InputError where Ray is missing or nothing answers."""
    ray = _installed()
    begun = not ray.is_initialized()
    if begun:
        _connect(ray, address)
    cluster = RayCluster(ray)
    try:
        yield cluster
    finally:
        if begun:
            ray.shutdown()
        cluster.actors.end(disconnected=begun)


def _installed() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError('engine ray needs Ray, which is not installed: pip install "clip-geometry[scale]"') from None
    return ray


def _connect(ray: Any, address: str | None) -> None:
    where = _chosen(address)
    try:
        _knock(where)
        ray.init(address=where, logging_level=logging.ERROR, **({"include_dashboard": False} if where == HERE else {}))
    except (OSError, RuntimeError, ValueError, ImportError, ray.exceptions.RayError) as error:
        raise InputError(f"no Ray cluster answers at {where} ({_reason(error)}): ray status tells") from None


def _reason(error: BaseException) -> str:
    """What began it: a refused token, say, is told as a failed connection that has a traceback for its text."""
    while error.__cause__ is not None:
        error = error.__cause__
    told = str(error).strip()
    return " ".join((told.splitlines()[-1] if "Traceback" in told else told).split())[:200]


def _chosen(address: str | None) -> str:
    """RAY_ADDRESS where no other address is given, as in Ray itself; but never a cluster that nobody named."""
    if address is None or address == "auto":
        return os.environ.get("RAY_ADDRESS") or address or HERE
    return address


def _knock(address: str) -> None:
    """Ray itself would try for minutes before it says that nobody is there."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=KNOCK).close()
