"""A training that is interrupted goes on from here: one file, there whole or not at all."""

import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import torch
from typing_extensions import TypedDict  # pydantic takes the standard one from Python 3.12 on

from clip_geometry.files import write_atomically
from clip_geometry.progress import note
from clip_geometry.reading import checked, first_line, read_checkpoint
from clip_geometry.registry import InputError, shown
from clip_geometry.results import Results

SECONDS = 30.0  # between checkpoints at least
SHARE = 0.05  # of the time that writing them may take
FOLDER = "checkpoints"  # of a run folder
Place = TypeVar("Place", bound=tuple[Any, ...])


class Checkpoint:
    """State in `path`, as torch.save writes it: tensors, numbers, strings, lists, tuples and dicts."""

    def __init__(self, path: Path):
        self.path = path
        self._next = time.monotonic() + SECONDS

    @classmethod
    def of(cls, run: Path, key: str) -> Self:
        """That of a cell; run: the folder of the run, in which `remove_finished` finds it."""
        return cls(run / FOLDER / f"{key}.pt")

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def save(self, state: dict[str, Any]) -> None:
        started = time.monotonic()
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, buffer.getvalue())
        ended = time.monotonic()
        self._next = ended + max(SECONDS, (ended - started) / SHARE)

    def load(self) -> dict[str, Any] | None:
        """None where there is none, or none that can be read."""
        if not self.path.exists():
            return None
        try:
            return checked(read_checkpoint(self.path), shown(self.path), dict[str, Any])
        except InputError:
            note(f"{shown(self.path)} cannot be read, the training begins again")
            return None

    def restore(self, training: "Resumable", state: Any) -> None:
        """Puts the training where the state has it. Raises InputError for the state of another training."""
        try:
            training.restore(state)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            what = f"is the checkpoint of another training ({first_line(error)})"
            raise InputError(f"{shown(self.path)} {what}; remove it to begin again") from None


def remove_finished(run: Path) -> None:
    """Removes the checkpoints of cells whose rows are written; until then they are needed."""
    paths = list((run / FOLDER).glob("*.pt"))
    finished = Results(run / "results.jsonl").finished() if paths else set()
    for path in paths:
        if path.stem in finished:
            path.unlink()


class Resumable(Protocol):
    def state(self) -> dict[str, Any]: ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


class _Measured(TypedDict):
    training: dict[str, Any]
    trajectory: list[tuple[tuple[str | int | None, ...], list[float]]]


def save_measured(checkpoint: Checkpoint, training: Resumable, trajectory: Mapping[Any, list[float]]) -> None:
    """A training and what was measured of it so far, as `resume` reads them. trajectory: place → values."""
    columns = [(tuple(place), values) for place, values in trajectory.items()]
    checkpoint.save({"training": training.state(), "trajectory": columns})


def resume(training: Resumable, checkpoint: Checkpoint, place: Callable[..., Place]) -> dict[Place, list[float]]:
    """Puts the training where the checkpoint has it, and returns what was measured by then; nothing without a
    checkpoint. place: the named tuple of the trajectory's keys."""
    found = checkpoint.load()
    if found is None:
        return {}
    state: _Measured = checked(found, shown(checkpoint.path), _Measured)
    checkpoint.restore(training, state["training"])
    return {place(*key): list(values) for key, values in state["trajectory"]}
