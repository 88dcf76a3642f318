"""Shards embedded by actors of a Ray cluster. Each actor holds the encoder and computes a shard at a time."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from clip_geometry import files
from clip_geometry.embedding.engines.base import Record, ShardMaker
from clip_geometry.embedding.engines.jobs import note_waiting, result, send
from clip_geometry.embedding.engines.worker_environment import WorkerEnvironment
from clip_geometry.embedding.store import Shard
from clip_geometry.progress import Advance
from clip_geometry.registry import InputError

RETRIES = 3  # of a shard whose worker died: a machine may be taken away, but what kills each of its workers is a bug
ADVICE = "give it more memory or a smaller batch size, and run the same command again; finished shards are kept"


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
        self._hire(maker, len(shards))
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

    def _hire(self, maker: ShardMaker, shards: int) -> None:
        machines = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        count, needs = capacity(machines, maker.device)
        if self.maker is not maker:
            self.end()
            given = with_readers(maker, max(0, needs["num_cpus"] - 1))
            what = f"the data set {maker.dataset.config.name} or the model {maker.config.model}"
            self.sent = [send(self.ray, each, what) for each in (WorkerEnvironment.here(maker.encoder), given)]
            self.maker = maker
        missing = min(count, shards) - len(self.actors)
        if missing > 0:
            hired = self.ray.remote(max_restarts=-1, max_task_retries=RETRIES, **needs)(Embedder)
            self.actors += [hired.remote() for _ in range(missing)]


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
