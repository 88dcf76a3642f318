"""Shards embedded by actors of a Ray cluster: each holds the encoder, and computes a shard at a time."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from clip_geometry import files
from clip_geometry.embedding.engines.alike import Likeness
from clip_geometry.embedding.engines.base import Record, ShardMaker
from clip_geometry.embedding.engines.jobs import result, send, told_to_wait
from clip_geometry.embedding.store import Shard
from clip_geometry.progress import Advance
from clip_geometry.registry import InputError

RETRIES = 3  # of a shard whose worker died: a machine may be taken away, but what kills each of its workers is a bug
ADVICE = "give it more memory or a smaller batch size, and run the same command again; finished shards are kept"


class Embedder:
    """What an actor is. Its encoder is built with the first shard, so that what goes wrong there is told as it is."""

    maker: Any = None

    def ready(self) -> None:
        """Answers as soon as there is a process."""

    def make(self, sent: list[Any], modality: str, shard: Shard) -> Record:
        """sent: references to a Likeness and to the maker, in a list, so that Ray does not fetch them for every
        shard, nor the one before the other has been taken on."""
        if self.maker is None:
            import ray

            likeness: Any = ray.get(sent[0])
            likeness.take_on()
            maker: Any = ray.get(sent[1])
            likeness.require(maker.encoder)
            self.maker = maker
        return self.maker.make(modality, shard)


class ShardActors:
    """Actors for one maker, as many as the cluster has GPUs, or else processors, and no more than shards.

    A shard is given to an actor that has answered: one that waits for a place on the cluster holds up none.
    Ray starts a dead actor anew and gives it its shard again. A shard may so be written twice, by the old process and
    the new; it is renamed into its place and has the same bytes both times.
    """

    def __init__(self, ray: Any):
        self.ray = ray
        self.maker: ShardMaker | None = None
        self.sent: list[Any] = []  # once for all actors
        self.actors: list[Any] = []

    def records(
        self, maker: ShardMaker, modality: str, shards: Sequence[Shard], advance: Advance
    ) -> Generator[Record, None, None]:
        self._hire(maker, len(shards))
        waiting, left = list(reversed(shards)), len(shards)
        busy: dict[Any, tuple[Shard | None, Any]] = {actor.ready.remote(): (None, actor) for actor in self.actors}
        told_to_wait(self.ray, list(busy))
        while left:
            (done,), _ = self.ray.wait(list(busy), num_returns=1)
            shard, actor = busy.pop(done)
            record = self._record(done, shard, modality)
            if waiting:
                following = waiting.pop()
                busy[actor.make.remote(self.sent, modality, following)] = following, actor
            if shard is not None:
                left -= 1
                _require_shared(maker, modality, shard)
                advance(shard.stop - shard.start)
                yield record

    def __len__(self) -> int:
        return len(self.actors)

    def end(self, disconnected: bool = False) -> None:
        """disconnected: from the cluster, which ends the actors without a word about shards that they were at."""
        for actor in () if disconnected else self.actors:
            self.ray.kill(actor)
        if self.maker is not None:  # what dead workers left
            for side in self.maker.dataset.sides:
                files.remove_temporaries(self.maker.folder / side.modality)
        self.actors, self.maker, self.sent = [], None, []

    def _hire(self, maker: ShardMaker, shards: int) -> None:
        machines = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        count, needs = _capacity(machines, maker.device)
        if self.maker is not maker:
            self.end()
            given = with_readers(maker, max(0, needs["num_cpus"] - 1))
            what = f"the data set {maker.dataset.config.name} or the model {maker.config.model}"
            self.sent = [send(self.ray, each, what) for each in (Likeness.here(maker.encoder), given)]
            self.maker = maker
        missing = min(count, shards) - len(self.actors)
        if missing > 0:
            hired = self.ray.remote(max_restarts=-1, max_task_retries=RETRIES, **needs)(Embedder)
            self.actors += [hired.remote() for _ in range(missing)]

    def _record(self, done: Any, shard: Shard | None, modality: str) -> Record:
        worker = f"the worker of {modality} shard {shard.number}" if shard is not None else "a worker"
        return result(self.ray, done, worker, RETRIES + 1, ADVICE)


def _capacity(machines: Sequence[Mapping[str, float]], device: str) -> tuple[int, dict[str, int]]:
    """How many actors there is room for, and what one needs: a GPU and its share of its machine's processors, which
    every machine with GPUs has; or a processor."""
    with_gpus = [machine for machine in machines if machine.get("GPU", 0) >= 1]
    if device != "cpu" and with_gpus:
        share = min(int(machine.get("CPU", 0) // machine["GPU"]) for machine in with_gpus)
        return sum(int(machine["GPU"]) for machine in with_gpus), {"num_gpus": 1, "num_cpus": share}
    return max(1, sum(int(machine.get("CPU", 0)) for machine in machines)), {"num_cpus": 1}


def with_readers(maker: ShardMaker, count: int) -> ShardMaker:
    """The same with so many processes beside an actor that decode images, where nobody asked for another number: an
    actor does not see on how many processors it is alone."""
    if maker.throughput.workers is not None:
        return maker
    return replace(maker, throughput=maker.throughput.model_copy(update={"workers": count}))


def _require_shared(maker: ShardMaker, modality: str, shard: Shard) -> None:
    path = maker.folder / modality / shard.record
    with suppress(OSError):
        files.sync_folder(path.parent)  # a network file system may know its own view of the folder only
    if not path.is_file():
        raise InputError(
            f"a worker wrote {path}, and it is not there on this machine: -o needs a folder that all machines of the "
            "cluster share"
        )
