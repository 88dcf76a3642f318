"""A training that is interrupted goes on from here: one file, there whole or not at all."""

import io
import time
from pathlib import Path
from typing import Any

import torch

from clip_geometry.files import remove_temporaries, write_atomically
from clip_geometry.progress import note

SECONDS = 30.0  # between checkpoints at least
SHARE = 0.05  # of the time that writing them may take


class Checkpoint:
    """State in `path`, as torch.save writes it: tensors, numbers, strings, lists, tuples and dicts."""

    def __init__(self, path: Path):
        self.path = path
        self._next = time.monotonic() + SECONDS

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def save(self, state: dict[str, Any]) -> None:
        started = time.monotonic()
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.path.parent)  # of a killed writer; the run's folder is locked
        write_atomically(self.path, buffer.getvalue())
        ended = time.monotonic()
        self._next = ended + max(SECONDS, (ended - started) / SHARE)

    def load(self) -> dict[str, Any] | None:
        """None where there is none, or none that can be read."""
        if not self.path.exists():
            return None
        try:
            return torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises what the damage leads to
            note(f"{self.path} cannot be read ({type(error).__name__}), the training begins anew")
            return None

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
