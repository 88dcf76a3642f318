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

PASSED = ("CLIP_GEOMETRY_", "HF_", "TORCH_HOME")  # prefixes of the variables that say where data and models are


@dataclass(frozen=True)
class WorkerEnvironment:
    """What the rows of a worker depend on besides its arguments.

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
