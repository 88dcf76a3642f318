"""Who computes: this process, or the machines of a Ray cluster. `engines` is the table of them."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from clip_geometry.embedding.engines.base import Engine
from clip_geometry.embedding.engines.cluster import ray_cluster
from clip_geometry.embedding.engines.local import this_process
from clip_geometry.registry import InputError, Registry

__all__ = ["Engine", "engines", "open_engine"]

# each opens an engine at an address, None where there is none to be told, and closes it behind
engines: Registry[Callable[[str | None], AbstractContextManager[Engine]]] = Registry("engine")
engines.add("local", this_process)
engines.add("ray", ray_cluster)


def open_engine(name: str, address: str | None = None) -> AbstractContextManager[Engine]:
    """The engine of that name, to be entered: its workers are there within the `with`.

    address: of a running Ray cluster, "auto" on one of its machines. Raises InputError for an unknown name, and for an
    address where the engine has none.
    """
    if address is not None and name == "local":
        raise InputError(f"address {address!r} is that of a Ray cluster, and the engine is local; give engine ray too")
    return engines[name](address)
