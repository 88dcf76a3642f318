"""Engines that compute shards and passes over rows, in this process or on the machines of a Ray cluster.

The engine for several machines uses Ray tasks and actors, not Ray Data. A shard is written to files, and only its
record is returned; a span of rows is reduced to a sum. So there are no intermediate rows that Ray Data would store,
split and pass on.
"""

import mmap
import os
import socket
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from clip_geometry import files
from clip_geometry.data.base import Side
from clip_geometry.embedding.rows import Record, ShardMaker
from clip_geometry.embedding.store import Shard
from clip_geometry.embedding.supply import supply, throughput_line
from clip_geometry.encoders.base import Encoder, encoders
from clip_geometry.io.reading import first_line
from clip_geometry.progress import INTERVAL, Advance, PassProgress, note
from clip_geometry.registry import InputError, instance, library, library_versions, of_packages, unknown
from clip_geometry.rows.streamed import Accumulate, StreamedRows, aggregate_blocks

Bar = AbstractContextManager[Advance]  # a progress bar, called with the number of finished items
PASSED = ("CLIP_GEOMETRY_", "HF_", "TORCH_HOME")  # prefixes of environment variables that locate data and models
RETRIES = 3  # per shard or span whose worker died: a machine can be taken away, but a job that kills 4 workers is a bug
MAX_SPANS = 1024  # per pass; small enough spans that little is lost when a worker dies
MIN_BYTES = 2**25  # stored size of a span's rows; returning the sum of a span takes time, too
SMALLER = "give it more memory or a smaller batch size, and run the same command again; finished shards are kept"


class Engine:
    """An engine that computes shards of a store and passes over rows, sequentially in this process.

    Attributes:
        spent: By modality, how the shards were computed and how long it took, for the manifest.
    """

    name = "local"

    def __init__(self) -> None:
        self.spent: dict[str, Any] = {}

    def shards(self, maker: ShardMaker, side: Side, shards: Sequence[Shard], bar: Bar) -> Generator[Record, None, None]:
        """Compute missing shards and yield their records in any order, each after its files are written.

        This engine writes each shard in the background while it computes the next one, so that two shards are in
        memory. A write error is raised after the next shard is computed; a shard that is being written is always
        completed.

        Args:
            maker: Computes and writes a shard.
            side: The images or texts.
            shards: The shards to compute.
            bar: Progress bar, entered when the work begins; counts finished items.

        Yields:
            The record of each shard.
        """

        def written(pending: Future[Record]) -> Record:
            with batches.doing("write"):
                return pending.result()

        pending: Future[Record] | None = None  # the write of the last shard
        opening = supply(maker.encoder, side, shards, maker.batch_size, maker.throughput)
        # fork the worker processes before the threads of the progress bar and the writer start
        with opening as batches, bar as advance, ThreadPoolExecutor(1, "write-shards") as writer:
            for shard in shards:
                write = maker.compute(batches, shard, advance)
                if pending is not None:
                    yield written(pending)
                pending = writer.submit(write)
            if pending is not None:
                yield written(pending)
        self.spent[side.modality] = batches.facts()
        if self.spent[side.modality]["seconds"] >= INTERVAL:
            note(throughput_line(side.modality, self.spent[side.modality]))

    def stream(self, rows: StreamedRows) -> StreamedRows:
        """Return the same rows with their aggregations run by this engine."""
        return rows


def open_engine(name: str, address: str | None = None) -> AbstractContextManager[Engine]:
    """Open an engine, which reads and sums large sets in this process or on a Ray cluster.

    Args:
        name: "local" (this process) or "ray".
        address: Address of a running Ray cluster, or "auto" on one of its machines. Default: the cluster named by the
            environment variable RAY_ADDRESS; if it is not set, a new cluster on this machine, which ends with the
            block.

    Returns:
        A context manager that returns the engine, for `MeasuredSets(…, engine=…)` and `measure(…, engine=…)`. Its
        workers end with the `with` block.

    Raises:
        InputError: The engine is unknown, an address was given for the local engine, Ray is not installed, or no
            cluster answers.

    Example:
        >>> import clip_geometry as cg
        >>> with cg.open_engine("local") as engine:
        ...     engine.name
        'local'
    """
    instance(address, str | None, "address", "text")
    instance(name, str, "name", "local or ray")
    if address is not None and name == "local":
        raise InputError(f"address {address!r} is for a Ray cluster, but the engine is local; give engine ray too")
    if name not in ("local", "ray"):
        raise unknown("engine", name, ("local", "ray"), "the documentation")
    return _ray_engine(address) if name == "ray" else nullcontext(Engine())


class RayEngine(Engine):
    """An engine that computes shards in Ray actors, which hold the encoder, and the spans of a pass in Ray tasks.

    There is one actor per GPU of the cluster, or per processor if it has no GPUs, but no more actors than shards. Ray
    restarts a dead actor and gives it its shard again. The old and the new process may then both write this shard;
    this is harmless, because shards are renamed into place and have the same bytes both times.
    """

    name = "ray"

    def __init__(self, ray: Any):
        super().__init__()
        self.ray = ray
        self.maker: ShardMaker | None = None
        self.sent: list[Any] = []  # references to the environment and the maker, shared by all actors
        self.actors: list[Any] = []
        self.span_task = ray.remote(sum_span)  # created once, because Ray keeps every remote function of a process

    def shards(self, maker: ShardMaker, side: Side, shards: Sequence[Shard], bar: Bar) -> Generator[Record, None, None]:
        machines = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        count, needs = capacity(machines, maker.device)
        if self.maker is not maker:
            self.end_actors()
            what = f"the data set {maker.dataset.config.name} or the model {maker.config.model}"
            values = (environment(maker.encoder), with_readers(maker, needs["num_cpus"] - 1))
            self.sent = [self._send(value, what) for value in values]
            self.maker = maker
        worker = self.ray.remote(max_restarts=-1, max_task_retries=RETRIES, **needs)(ShardWorker)
        self.actors += [worker.remote() for _ in range(min(count, len(shards)) - len(self.actors))]
        waiting = deque(shards)
        unfinished = len(shards)
        # give an actor a shard only after it has answered, so that an actor that waits for resources delays no shard
        busy: dict[Any, Any] = {actor.__ray_ready__.remote(): (actor, None) for actor in self.actors}
        with bar as advance:
            while unfinished:
                (job,), _ = self.ray.wait(list(busy), num_returns=1)
                actor, shard = busy.pop(job)
                what = "a worker" if shard is None else f"the worker of {side.modality} shard {shard.number}"
                record = self._result(job, what, SMALLER)
                if waiting:
                    next_shard = waiting.popleft()
                    busy[actor.make.remote(self.sent, side.modality, next_shard)] = actor, next_shard
                if shard is not None:
                    unfinished -= 1
                    require_shared(maker.folder / side.modality / shard.files[-1])
                    advance(shard.stop - shard.start)
                    yield record
        self.spent[side.modality] = {"engine": self.name, "actors": len(self.actors)}

    def end_actors(self, disconnected: bool = False) -> None:
        """End the actors and remove temporary files of dead ones.

        Args:
            disconnected: Whether the cluster has already ended the actors.
        """
        for actor in () if disconnected else self.actors:
            self.ray.kill(actor)
        if self.maker is not None:
            files.remove_temporaries(self.maker.folder)
        self.actors = []
        self.maker = None

    def stream(self, rows: StreamedRows) -> StreamedRows:
        return rows.aggregated_by(self._aggregate)

    def _aggregate(
        self, x: StreamedRows, zero: Any, accumulate: Accumulate, merge: Any, size: int, along: Tensor | None
    ) -> Any:
        """Run `x.aggregate` on the cluster.

        The spans do not depend on the number of workers, so the sums are equal bit for bit. Two spans per processor
        are in progress at a time, so that memory holds a few sums, not those of all spans.
        """
        row_bytes = x.shape[1] * x.stored.itemsize
        sent = self._send((x, zero, accumulate, size), f"the rows of {x.name}")
        spans = spans_of(len(x), size, row_bytes)
        # clone, because a slice is a view and pickle would include the memory of all rows
        slices = (None if along is None else along[span.start : span.stop].clone() for span in spans)
        task = self.span_task.options(max_retries=RETRIES, num_cpus=1)
        jobs = (task.remote(sent, span, part) for span, part in zip(spans, slices, strict=True))
        processors = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        running = deque(islice(jobs, 2 * processors))
        advance = PassProgress(x.name, len(x), row_bytes)
        total = None
        for span in spans:
            worker = f"the worker of rows {span.start} to {span.stop} of {x.name}"
            span_sum = self._result(running.popleft(), worker, "give it more memory")
            running.extend(islice(jobs, 1))
            total = span_sum if span.start == 0 else merge(total, span_sum)
            advance(len(span))
        return total

    def _send(self, value: Any, what: str) -> Any:
        """Put a value into Ray's object store and return its reference; memory maps are sent as file names."""
        # Ray has one table of serializers for everything that this process sends, so register ours only temporarily
        self.ray.util.register_serializer(np.memmap, serializer=described, deserializer=opened)
        try:
            return self.ray.put(value)
        except Exception as error:  # pickle raises TypeError, AttributeError, PicklingError, …; Ray has its own
            why = first_line(error.__cause__ or error)
            raise InputError(f"{what} cannot be sent to other processes ({why}); leave out engine ray") from None
        finally:
            self.ray.util.deregister_serializer(np.memmap)

    def _result(self, job: Any, worker: str, advice: str) -> Any:
        """Return the result of a job. Its InputError or OSError is re-raised; other errors keep Ray's traceback."""
        try:
            return self.ray.get(job)
        except self.ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, InputError | OSError):
                raise cause from None
            reason = " ".join(str(cause or error).partition("traceback:")[0].split())[:150]
            if isinstance(cause, self.ray.exceptions.RayError):  # an error in the arguments of the job
                raise InputError(f"{worker} could not begin ({reason})") from None
            if isinstance(error, self.ray.exceptions.RayTaskError):
                raise
            raise InputError(f"{worker} died {RETRIES + 1} times ({reason}): {advice}") from None


class ShardWorker:
    """An actor that computes shards.

    It builds its encoder with the first shard, so that the driver receives errors of the encoder unchanged.
    """

    maker: Any = None

    def make(self, sent: list[Any], modality: str, shard: Shard) -> Record:
        """Compute and write one shard and return its record.

        Args:
            sent: References to the environment and the maker, in a list so that Ray does not resolve them. They are
                fetched once, the maker after the environment is replicated.
            modality: The side of the shard.
            shard: The shard.
        """
        if self.maker is None:
            import ray

            driver: Any = ray.get(sent[0])
            replicate(driver)
            maker: Any = ray.get(sent[1])
            require_equal(driver["facts"], facts_of(maker.encoder))
            self.maker = maker
        maker = self.maker
        side = next(side for side in maker.dataset.sides if side.modality == modality)
        with supply(maker.encoder, side, [shard], maker.batch_size, maker.throughput) as batches:
            write = maker.compute(batches, shard, lambda items: None)
            return write()


def environment(encoder: Encoder) -> dict[str, Any]:
    """Return the state of this process that rows depend on, besides explicit arguments.

    A worker replicates the current folder, the environment variables and the user's own encoder families. The facts
    must be equal in the worker.
    """
    # workers find the encoder families of the library and of its entry points themselves
    packages = [entry.module.partition(".")[0] for entry in of_packages("clip_geometry.encoders")]
    known = tuple(f"{package}." for package in ("clip_geometry", *packages))
    return {
        "folder": str(Path.cwd()),
        "variables": {name: value for name, value in os.environ.items() if name.startswith(PASSED)},
        "families": {name: entry for name, entry in encoders.items() if not entry.config.__module__.startswith(known)},
        "facts": facts_of(encoder),
    }


def replicate(driver: Mapping[str, Any]) -> None:
    """Apply the driver's environment in a worker. Variables that are already set in the worker are kept."""
    with suppress(OSError):  # on a machine without this folder, relative paths do not work
        os.chdir(driver["folder"])
    for name, value in driver["variables"].items():
        os.environ.setdefault(name, value)
    for name, entry in driver["families"].items():
        if name not in encoders:  # unpickling the entries may have imported and registered it
            encoders.add(name, entry)


def facts_of(encoder: Encoder) -> dict[str, Any]:
    """Return the library versions and the weights that rows depend on.

    Versions are without "+cu132" or "+cpu", because a driver without a GPU may use workers that have one.
    """
    versions = {f"the version of {name}": version.partition("+")[0] for name, version in library_versions().items()}
    return versions | {f"weights of {encoder.config.model}": encoder.describe().get("weights")}


def require_equal(driver: Mapping[str, Any], worker: Mapping[str, Any]) -> None:
    for what, value in driver.items():
        if value != worker.get(what):
            raise InputError(
                f"{what} is {value} here, but {worker.get(what)} on {socket.gethostname()}, a machine of the cluster; "
                "make it the same on all machines, since rows depend on it"
            )


def capacity(machines: Sequence[Mapping[str, float]], device: str) -> tuple[int, dict[str, int]]:
    """Return the number of actors that fit and the resources of one.

    An actor gets a GPU and as many processors per GPU as every machine with GPUs has, or a single processor if there
    are no GPUs or `device` is "cpu".
    """
    with_gpus = [machine for machine in machines if machine.get("GPU", 0) >= 1]
    if device != "cpu" and with_gpus:
        share = min(int(machine.get("CPU", 0) // machine["GPU"]) for machine in with_gpus)
        return sum(int(machine["GPU"]) for machine in with_gpus), {"num_gpus": 1, "num_cpus": share}
    return max(1, sum(int(machine.get("CPU", 0)) for machine in machines)), {"num_cpus": 1}


def with_readers(maker: ShardMaker, count: int) -> ShardMaker:
    """Set the number of processes that decode images, unless the user set it.

    An actor cannot choose the number itself, because it does not know which processors are reserved for it.
    """
    if maker.throughput.workers is None:
        maker = replace(maker, throughput=maker.throughput.model_copy(update={"workers": max(0, count)}))
    return maker


def require_shared(path: Path) -> None:
    """Raise InputError if a record that a worker wrote is not visible on this machine."""
    with suppress(OSError):
        files.sync_folder(path.parent)  # a network file system may show an outdated view of the folder
    if not path.is_file():
        raise InputError(
            f"a worker wrote {path}, which does not exist on this machine: -o needs a folder that all machines share"
        )


def spans_of(rows: int, size: int, row_bytes: int) -> list[range]:
    """Return spans of whole blocks of `size` rows, so that the sums are the same as on one machine."""
    step = max(-(-rows // (MAX_SPANS * size)), -(-MIN_BYTES // (size * row_bytes))) * size
    return [range(start, min(start + step, rows)) for start in range(0, rows, step)]


def sum_span(job: tuple[StreamedRows, Any, Accumulate, int], span: range, along: Tensor | None) -> Any:
    return aggregate_blocks(*job, along, span)


def described(mapped: np.memmap) -> tuple[Any, ...] | np.ndarray:
    """Serialize a memory map.

    Returns (file, dtype, mode, offset in bytes, shape), or the values if the map is not a contiguous part of a file.
    """
    base: Any = getattr(mapped, "_mmap", None)
    is_file = base is not None and mapped.filename is not None and mapped.mode != "c"  # c: copy-on-write, not saved
    if not (is_file and mapped.flags.c_contiguous and mapped.size):
        return np.array(mapped)
    # a slice of a map keeps the offset of the whole map, which begins at a page boundary
    map_address = np.frombuffer(base, np.uint8).ctypes.data  # pyright: ignore[reportArgumentType, reportCallIssue]
    map_offset = mapped.offset - mapped.offset % mmap.ALLOCATIONGRANULARITY
    offset = map_offset + mapped.ctypes.data - map_address
    return str(mapped.filename), mapped.dtype.str, "r", offset, mapped.shape


def opened(description: tuple[Any, ...] | np.ndarray) -> Any:
    """Restore the memory map or array from the result of `described`."""
    try:
        return description if isinstance(description, np.ndarray) else np.memmap(*description)
    except (OSError, ValueError) as error:
        return Unreadable(
            f"a worker cannot read {description[0]} ({error}): all machines of the cluster need the file at this path"
        )


@dataclass(frozen=True)
class Unreadable:
    """A placeholder for a memory map that cannot be opened; Ray would print an error in `opened` as a traceback."""

    why: str

    def __getitem__(self, rows: Any) -> Any:
        raise InputError(self.why)


@contextmanager
def _ray_engine(address: str | None) -> Iterator[RayEngine]:
    """Connect to a Ray cluster and give its engine.

    Uses the cluster to which this process is already connected, or else the one at the address or at RAY_ADDRESS.
    Without an address, starts a cluster of this machine's processors, which ends with the block. Raises InputError if
    Ray is not installed or no cluster answers.
    """
    ray = library("ray", "ray", "engine ray")
    is_new = not ray.is_initialized()
    if is_new:
        if address in (None, "auto"):  # like Ray, but never use a cluster that was not named
            address = os.environ.get("RAY_ADDRESS") or address or "local"
        host, _, port = address.rpartition(":")
        try:
            if port.isdecimal() and "/" not in host:  # Ray itself would retry for minutes before it fails
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(address=address, logging_level="ERROR", include_dashboard=False if address == "local" else None)
        except (OSError, RuntimeError, ValueError, ImportError, ray.exceptions.RayError) as error:
            while error.__cause__ is not None:  # Ray reports a rejected token, for example, as a failed connection
                error = error.__cause__
            why = str(error).strip().rpartition("\n")[2]  # the last line of a traceback
            raise InputError(f"no Ray cluster answers at {address} ({why}): check it with ray status") from None
    engine = RayEngine(ray)
    try:
        yield engine
    finally:
        if is_new:
            ray.shutdown()
        engine.end_actors(disconnected=is_new)
