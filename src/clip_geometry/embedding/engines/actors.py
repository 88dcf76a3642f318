"""Shards embedded by actors of a Ray cluster. Each actor holds the encoder and computes a shard at a time."""

import os
import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clip_geometry import files
from clip_geometry.embedding.engines.base import Record, ShardMaker
from clip_geometry.embedding.engines.jobs import note_waiting, result, send
from clip_geometry.embedding.store import Shard
from clip_geometry.encoders.base import Encoder, EncoderEntry, encoders
from clip_geometry.progress import Advance
from clip_geometry.registry import InputError
from clip_geometry.versions import library_versions

RETRIES = 3  # of a shard whose worker died: a machine may be taken away, but what kills each of its workers is a bug
ADVICE = "give it more memory or a smaller batch size, and run the same command again; finished shards are kept"
PASSED = ("CLIP_GEOMETRY_", "HF_", "TORCH_HOME")  # prefixes of the variables that say where data and models are


@dataclass(frozen=True)
class WorkerEnvironment:
    """What the rows of a worker depend on besides its arguments: replicated there, or required to match.

    Attributes:
        folder: Working directory, which relative paths start from.
        variables: Environment variables that say where data and models are.
        families: Encoder families that the user's own program registered.
        versions: Versions of the libraries, which must match.
        weights: Checksum of the model's weights, which must match.
    """

    folder: str
    variables: Mapping[str, str]
    families: Mapping[str, EncoderEntry]
    versions: Mapping[str, str]
    weights: Any

    @classmethod
    def here(cls, encoder: Encoder) -> "WorkerEnvironment":
        """The environment of this process."""
        variables = {name: value for name, value in os.environ.items() if name.startswith(PASSED)}
        own = {k: each for k, each in encoders.items() if not each.config.__module__.startswith("clip_geometry.")}
        return cls(str(Path.cwd()), variables, own, _versions(), encoder.describe().get("weights"))

    def replicate(self) -> None:
        """Applies it in a worker, before anything else runs there. Variables that the worker has stay as they are."""
        with suppress(OSError):  # a machine without this folder has no relative paths
            os.chdir(self.folder)
        for name, value in self.variables.items():
            os.environ.setdefault(name, value)
        for name, entry in self.families.items():
            if name not in encoders:  # its module may have been imported just now, as entries were unpickled
                encoders.add(name, entry)
        there = _versions()
        for name, version in self.versions.items():
            _require_equal(f"the version of {name}", version, there.get(name))

    def require_weights(self, encoder: Encoder) -> None:
        _require_equal(f"weights of {encoder.config.model}", self.weights, encoder.describe().get("weights"))


def _require_equal(what: str, here: Any, there: Any) -> None:
    if here != there:
        raise InputError(
            f"{what} is {here} here and {there} on {socket.gethostname()}, a machine "
            "of the cluster: rows would depend on who computes them; make all machines alike"
        )


def _versions() -> dict[str, str]:
    """Without "+cu132" or "+cpu": a driver without a GPU may use workers that have one."""
    return {name: version.partition("+")[0] for name, version in library_versions().items()}


class Embedder:
    """The class of an actor. It builds its encoder with the first shard, whose errors reach the driver as they are."""

    maker: Any = None

    def ready(self) -> None:
        """Returns as soon as the process runs."""

    def make(self, sent: list[Any], modality: str, shard: Shard) -> Record:
        """Computes one shard. sent: references to a WorkerEnvironment and the ShardMaker, in a list so that Ray fetches
        neither for every shard, nor the maker before the environment is replicated."""
        if self.maker is None:
            import ray

            environment: Any = ray.get(sent[0])
            environment.replicate()
            maker: Any = ray.get(sent[1])
            environment.require_weights(maker.encoder)
            self.maker = maker
        return self.maker.make(modality, shard)


class ShardActors:
    """Actors for one maker: one per GPU of the cluster, or else per processor, and no more than shards.

    Only an actor that has answered is given a shard, so that one that waits for a place on the cluster delays none. Ray
    restarts a dead actor and gives it its shard again. The old and the new process may then both write a shard, which
    is renamed into place and has the same bytes both times.
    """

    def __init__(self, ray: Any):
        self.ray = ray
        self.maker: ShardMaker | None = None
        self.sent: list[Any] = []  # once for all actors
        self.actors: list[Any] = []

    def __len__(self) -> int:
        return len(self.actors)

    def records(
        self, maker: ShardMaker, modality: str, shards: Sequence[Shard], advance: Advance
    ) -> Generator[Record, None, None]:
        """Yields the records of the shards in the order in which they are finished."""
        machines = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        count, needs = capacity(machines, maker.device)
        if self.maker is not maker:
            self.end()
            given = with_readers(maker, max(0, needs["num_cpus"] - 1))
            what = f"the data set {maker.dataset.config.name} or the model {maker.config.model}"
            self.sent = [send(self.ray, each, what) for each in (WorkerEnvironment.here(maker.encoder), given)]
            self.maker = maker
        missing = min(count, len(shards)) - len(self.actors)
        if missing > 0:
            hired = self.ray.remote(max_restarts=-1, max_task_retries=RETRIES, **needs)(Embedder)
            self.actors += [hired.remote() for _ in range(missing)]
        waiting, left = list(reversed(shards)), len(shards)
        busy: dict[Any, tuple[Shard | None, Any]] = {actor.ready.remote(): (None, actor) for actor in self.actors}
        note_waiting(self.ray, list(busy))
        while left:
            (done,), _ = self.ray.wait(list(busy), num_returns=1)
            shard, actor = busy.pop(done)
            worker = f"the worker of {modality} shard {shard.number}" if shard is not None else "a worker"
            record = result(self.ray, done, worker, RETRIES + 1, ADVICE)
            if waiting:
                following = waiting.pop()
                busy[actor.make.remote(self.sent, modality, following)] = following, actor
            if shard is not None:
                left -= 1
                require_shared(maker, modality, shard)
                advance(shard.stop - shard.start)
                yield record

    def end(self, disconnected: bool = False) -> None:
        """Ends the actors. disconnected: the cluster has already ended them."""
        for actor in () if disconnected else self.actors:
            self.ray.kill(actor)
        if self.maker is not None:  # what dead workers left
            for side in self.maker.dataset.sides:
                files.remove_temporaries(self.maker.folder / side.modality)
        self.actors, self.maker, self.sent = [], None, []


def capacity(machines: Sequence[Mapping[str, float]], device: str) -> tuple[int, dict[str, int]]:
    """How many actors fit, and what one needs: a GPU with a share of the processors that every machine with GPUs has,
    or else a processor."""
    with_gpus = [machine for machine in machines if machine.get("GPU", 0) >= 1]
    if device != "cpu" and with_gpus:
        share = min(int(machine.get("CPU", 0) // machine["GPU"]) for machine in with_gpus)
        return sum(int(machine["GPU"]) for machine in with_gpus), {"num_gpus": 1, "num_cpus": share}
    return max(1, sum(int(machine.get("CPU", 0)) for machine in machines)), {"num_cpus": 1}


def with_readers(maker: ShardMaker, count: int) -> ShardMaker:
    """Sets the number of processes that decode images, unless the user did: an actor does not know which processors it
    has to itself."""
    if maker.throughput.workers is not None:
        return maker
    return replace(maker, throughput=maker.throughput.model_copy(update={"workers": count}))


def require_shared(maker: ShardMaker, modality: str, shard: Shard) -> None:
    """Raises InputError if the shard that a worker wrote is not visible on this machine."""
    path = maker.folder / modality / shard.record
    with suppress(OSError):
        files.sync_folder(path.parent)  # a network file system may know its own view of the folder only
    if not path.is_file():
        raise InputError(
            f"a worker wrote {path}, and it is not there on this machine: -o needs a folder that all machines of the "
            "cluster share"
        )
