"""Engines compute shards and passes over rows: in this process, or on the machines of a Ray cluster."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from clip_geometry.embedding.engines.base import Engine, this_process
from clip_geometry.embedding.engines.cluster import ray_cluster
from clip_geometry.registry import InputError, Registry

__all__ = ["Engine", "engines", "open_engine"]

# each opens an engine at an address (None where none was given) and closes it afterwards
engines: Registry[Callable[[str | None], AbstractContextManager[Engine]]] = Registry("engine")
engines.add("local", this_process)
engines.add("ray", ray_cluster)


def open_engine(name: str, address: str | None = None) -> AbstractContextManager[Engine]:
    """Opens an engine; its workers live as long as the `with` block.

    Args:
        name: "local" (this process) or "ray".
        address: Address of a running Ray cluster, "auto" on one of its machines. Default: the cluster named by the
            variable RAY_ADDRESS, else one of this machine's processors that ends with the block.

    Returns:
        A context manager that gives the engine, for `MeasuredSets(…, engine=…)`.

    Raises:
        InputError: The engine is unknown, an address was given for the local engine, Ray is not installed, or no
            cluster answers.

    Example:
        >>> import clip_geometry as cg
        >>> with cg.open_engine("local") as engine:
        ...     engine
        <local engine>
    """
    if address is not None and name == "local":
        raise InputError(f"address {address!r} is that of a Ray cluster, and the engine is local; give engine ray too")
    return engines[name](address)
