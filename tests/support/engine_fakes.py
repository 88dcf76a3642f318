"""What workers in other processes need to import: an encoder and sums that are slow, or fatal, once."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from clip_geometry.registry import InputError
from support.embed_fakes import FakeEncoder


def die_once(flag: Path) -> None:
    """SIGKILL for the first process that comes by; `flag` says which it was."""
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return
    flag.write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Fatal:
    """Called with each batch; the first worker that reaches its third batch dies there, in the middle of a shard."""

    folder: Path

    def __call__(self) -> None:
        mine = self.folder / f"batches-{os.getpid()}"
        with mine.open("a") as file:
            file.write("x")
        time.sleep(0.01)
        if mine.stat().st_size == 3:
            die_once(self.folder / "killed")


@dataclass(frozen=True)
class Always:
    def __call__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Refuses:
    def __call__(self) -> None:
        raise InputError("this model takes no such thing; take another")


@dataclass(frozen=True)
class Loading:
    """load_encoder of fakes that do so with each batch. They travel by pickling, unlike test modules."""

    on_batch: object

    def __call__(self, config, device="auto"):
        return FakeEncoder(config, on_batch=self.on_batch)
