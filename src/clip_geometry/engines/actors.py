"""Shards embedded by actors of a Ray cluster: each holds the encoder, and computes a shard at a time."""

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from clip_geometry import files
from clip_geometry.engines.base import Record, ShardMaker
from clip_geometry.progress import Advance
from clip_geometry.registry import InputError
from clip_geometry.store import Shard

RETRIES = 3  # of a shard whose worker died: a machine may be taken away, but what kills each of its workers is a bug


class Embedder:
    """What an actor is. Its encoder is built with the first shard, so that what goes wrong there is told as it is."""

    maker: Any = None

    def make(self, sent: list[Any], modality: str, shard: Shard) -> Record:
        """sent: a reference to the maker, in a list, so that Ray does not fetch it anew for every shard."""
        if self.maker is None:
            import ray

            self.maker = ray.get(sent[0])
        return self.maker.make(modality, shard)


class ShardActors:
    """Actors for one maker, as many as the cluster has GPUs, or else processors, and no more than shards.

    Ray starts a dead actor anew and gives it its shard again. A shard may so be written twice, by the old process and
    the new; it is renamed into its place and has the same bytes both times.
    """

    def __init__(self, ray: Any):
        self.ray = ray
        self.maker: ShardMaker | None = None
        self.sent: Any = None  # the maker, once for all actors
        self.actors: list[Any] = []

    def records(
        self, maker: ShardMaker, modality: str, shards: Sequence[Shard], advance: Advance
    ) -> Generator[Record, None, None]:
        self._hire(maker, len(shards))
        waiting, idle, busy = list(reversed(shards)), list(self.actors), {}
        while waiting or busy:
            while waiting and idle:
                shard, actor = waiting.pop(), idle.pop()
                busy[actor.make.remote([self.sent], modality, shard)] = shard, actor
            (done,), _ = self.ray.wait(list(busy), num_returns=1)
            shard, actor = busy.pop(done)
            idle.append(actor)
            record = self._record(done, shard, modality)
            _require_shared(maker, modality, shard)
            advance(shard.stop - shard.start)
            yield record

    def __len__(self) -> int:
        return len(self.actors)

    def end(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)
        if self.maker is not None:  # what dead workers left
            for side in self.maker.dataset.sides:
                files.remove_temporaries(self.maker.folder / side.modality)
        self.actors, self.maker, self.sent = [], None, None

    def _hire(self, maker: ShardMaker, shards: int) -> None:
        count, needs = _capacity(self.ray.cluster_resources(), maker.device)
        if self.maker is not maker:
            self.end()
            self.maker, self.sent = maker, self.ray.put(with_readers(maker, needs["num_cpus"] - 1))
        missing = min(count, shards) - len(self.actors)
        if missing > 0:
            hired = self.ray.remote(max_restarts=-1, max_task_retries=RETRIES, **needs)(Embedder)
            self.actors += [hired.remote() for _ in range(missing)]

    def _record(self, done: Any, shard: Shard, modality: str) -> Record:
        try:
            return self.ray.get(done)
        except self.ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, InputError) else error) from None
        except self.ray.exceptions.RayActorError as error:
            said = " ".join(str(error).split())[:200]
            raise InputError(
                f"the worker of {modality} shard {shard.number} died {RETRIES + 1} times ({said}): give it more memory "
                "or a smaller batch size, and run the same command again; finished shards are kept"
            ) from None


def _capacity(resources: dict[str, float], device: str) -> tuple[int, dict[str, int]]:
    """How many actors there is room for, and what one needs: a GPU and its share of the processors, or a processor."""
    processors, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
    if device != "cpu" and gpus:
        return gpus, {"num_gpus": 1, "num_cpus": max(1, processors // gpus)}
    return max(1, processors), {"num_cpus": 1}


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
