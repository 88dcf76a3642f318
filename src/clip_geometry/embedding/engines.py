"""Engines compute shards and passes over rows: in this process, or on the machines of a Ray cluster (`ray_engine`)."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from clip_geometry.data.base import Side
from clip_geometry.embedding.rows import Record, ShardMaker
from clip_geometry.embedding.store import Shard
from clip_geometry.embedding.supply import supply
from clip_geometry.embedding.throughput import throughput_line
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.progress import Advance, detail
from clip_geometry.registry import InputError, Registry

Bar = AbstractContextManager[Advance]  # of progress; called with the number of finished items


class Engine:
    """Computes shards of a store and passes over rows. This one does so in this process, one after the other.

    Attributes:
        spent: How each side's shards were computed and how long it took, for the manifest.
    """

    name = "local"

    def __init__(self) -> None:
        self.spent: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<{self.name} engine>"

    def shards(self, maker: ShardMaker, side: Side, shards: Sequence[Shard], bar: Bar) -> Generator[Record, None, None]:
        """Yields the records of missing shards in any order, each when its files are written.

        Here, each shard is written in the background while the next one is computed, so that memory holds two. An error
        of a write is raised when the next shard is computed; a shard that is being written is always finished.

        Args:
            maker: Computes and writes a shard.
            side: The images or texts.
            shards: Which of them.
            bar: Entered when the work begins; counts finished items.
        """
        supplied = supply(maker.encoder, side, shards, maker.batch_size, maker.throughput)
        writing: list[Future[Record]] = []  # of the last shard

        def write(shard: Callable[[], Record]) -> Record:
            with given.spent.working("write"):
                return shard()

        def finished() -> list[Record]:
            with given.spent.waiting("write"):
                return [each.result() for each in writing]

        # worker processes are forked before the threads of the progress bar and of the writer begin
        with supplied as (given, facts), bar as advance, ThreadPoolExecutor(1, "write-shards") as writer:
            for shard in shards:
                computed = maker.compute(side, shard, given, advance)
                records = finished()
                writing = [writer.submit(write, computed)]
                yield from records
            records = finished()
        self.spent[side.modality] = {**facts, "compile": maker.throughput.compile, **given.spent.facts()}
        detail(throughput_line(side.modality, self.spent[side.modality]))
        yield from records

    def stream(self, rows: StreamedRows) -> StreamedRows:
        """The same rows; the engine runs the passes over them that are aggregations."""
        return rows


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


@contextmanager
def _this_process(address: str | None) -> Iterator[Engine]:
    yield Engine()


@contextmanager
def _ray_cluster(address: str | None) -> Iterator[Engine]:
    from clip_geometry.embedding.ray_engine import ray_engine

    with ray_engine(address) as engine:
        yield engine


engines: Registry[Callable[[str | None], AbstractContextManager[Engine]]] = Registry("engine")
engines.add("local", _this_process)
engines.add("ray", _ray_cluster)
