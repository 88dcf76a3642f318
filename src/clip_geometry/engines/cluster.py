"""The engine on a Ray cluster, or on the processors of this machine where there is none.

Ray's tasks and actors, not its Data library: a shard's result is files, of which only a record comes back, and a span's
is one sum. There are no rows between two steps that Data would hold, split anew and pass on, and it would
cut batches otherwise than at the shards' beginnings, on which their bytes depend.
"""

import logging
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from clip_geometry.data.base import Side
from clip_geometry.engines.actors import ShardActors
from clip_geometry.engines.base import Engine, Record, ShardMaker, Shown
from clip_geometry.engines.mapped import send_maps_by_name
from clip_geometry.engines.spans import aggregate
from clip_geometry.geometry.streamed import StreamedRows
from clip_geometry.registry import InputError
from clip_geometry.store import Shard

KNOCK = 10.0  # seconds


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
    """The cluster at the address, or the one this process is connected to; otherwise one of this machine's processors,
    which ends with the `with`. Raises InputError where Ray is missing or nothing answers at the address."""
    ray = _installed()
    begun = not ray.is_initialized()
    if begun:
        _connect(ray, address)
    send_maps_by_name(ray)
    cluster = RayCluster(ray)
    try:
        yield cluster
    finally:
        cluster.actors.end()
        if begun:
            ray.shutdown()


def _installed() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError('engine ray needs Ray, which is not installed: pip install "clip-geometry[scale]"') from None
    return ray


def _connect(ray: Any, address: str | None) -> None:
    settings: dict[str, Any] = {} if address else {"include_dashboard": False}
    try:
        _knock(address or "")
        ray.init(address=address, logging_level=logging.ERROR, **settings)
    except (OSError, RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(f"no Ray cluster answers at {address or 'this machine'} ({said}): ray status tells") from None


def _knock(address: str) -> None:
    """Ray itself would try for minutes before it says that nobody is there."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=KNOCK).close()
