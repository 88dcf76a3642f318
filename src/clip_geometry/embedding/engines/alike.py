"""Replicates the driver's environment on a Ray worker and checks that versions and weights match."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clip_geometry.encoders.base import Encoder, EncoderEntry, encoders
from clip_geometry.registry import InputError
from clip_geometry.versions import library_versions

PASSED = ("CLIP_GEOMETRY_", "HF_", "TORCH_HOME")  # beginnings of the variables that say where data and models are


@dataclass(frozen=True)
class Likeness:
    """Of a process: the folder that relative paths are from, variables, families of encoders that are the user's own;
    and what has to be the same there: versions of libraries, but for how torch was built, and weights."""

    folder: str
    variables: Mapping[str, str]
    families: Mapping[str, EncoderEntry]
    versions: Mapping[str, str]
    weights: Any

    @classmethod
    def here(cls, encoder: Encoder) -> "Likeness":
        variables = {name: value for name, value in os.environ.items() if name.startswith(PASSED)}
        families = {name: entry for name, entry in encoders.items() if not _is_ours(entry)}
        return cls(str(Path.cwd()), variables, families, _versions(), _weights(encoder))

    def take_on(self) -> None:
        """In the worker, before anything else; what its machine says itself stays."""
        with suppress(OSError):  # a machine without this folder has no relative paths
            os.chdir(self.folder)
        for name, value in self.variables.items():
            os.environ.setdefault(name, value)
        for name, entry in self.families.items():
            if name not in encoders:  # its module may have been imported just now, as entries were unpickled
                encoders.add(name, entry)
        self._require("the version of {}", self.versions, _versions())

    def require(self, encoder: Encoder) -> None:
        self._require("{} of " + encoder.config.model, {"weights": self.weights}, {"weights": _weights(encoder)})

    def _require(self, what: str, here: Mapping[str, Any], there: Mapping[str, Any]) -> None:
        for name, value in here.items():
            if there.get(name) != value:
                raise InputError(
                    f"{what.format(name)} is {value} here and {there.get(name)} on {socket.gethostname()}, a machine "
                    "of the cluster: rows would depend on who computes them; make all machines alike"
                )


def _is_ours(entry: EncoderEntry) -> bool:
    return entry.config.__module__.startswith("clip_geometry.")


def _versions() -> dict[str, str]:
    """Without "+cu132", "+cpu": a machine without a GPU may command others that have some."""
    return {name: version.partition("+")[0] for name, version in library_versions().items()}


def _weights(encoder: Encoder) -> Any:
    return encoder.describe().get("weights")
