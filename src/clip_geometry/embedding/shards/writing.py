"""Shards written in the background: the next one is computed while the last one goes to the disk."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from clip_geometry.embedding.shards.timing import Spent


class Writer:
    """Writes one shard at a time, in order. `records` are those of the shards that are on the disk.

    At most one shard is waiting, so that memory holds two. An error of a write is raised by the next `write` or at the
    end. Whatever ends the block, the shard that is being written is finished first.
    """

    def __init__(self, spent: Spent):
        self.records: list[dict[str, Any]] = []
        self._spent = spent
        self._thread = ThreadPoolExecutor(1, "write-shards")
        self._waiting: Future[dict[str, Any]] | None = None

    def write(self, shard: Callable[[], dict[str, Any]]) -> None:
        self._finish()
        self._waiting = self._thread.submit(self._timed, shard)

    def _timed(self, shard: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        with self._spent.working("write"):
            return shard()

    def _finish(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            with self._spent.waiting("write"):
                self.records.append(waiting.result())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._thread.shutdown()  # waits for what is being written, whose error, if any, would not be the first
