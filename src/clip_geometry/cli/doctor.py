"""The command that shows what is installed, for bug reports."""

import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from clip_geometry.cli.options import JsonFile
from clip_geometry.display.table import Table, TableColumn
from clip_geometry.memory import memory
from clip_geometry.registry import of_packages

NOT_LISTED = {"test", "dev", "docs", "formats"}  # extras for developers, and one that combines others
VARIABLES = ("CLIP_GEOMETRY_DATA", "HF_HOME", "HF_HUB_OFFLINE", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")

Rows = Sequence[Sequence[str]]


def doctor(json_file: JsonFile = None) -> None:
    """Shows versions, devices, optional packages and folders. Exits with 1 if a required package is missing or old."""
    requirements = [Requirement(line) for line in requires("clip-geometry") or ()]
    required = [requirement for requirement in requirements if requirement.marker is None]
    problems = [problem for problem in map(_problem, required) if problem]
    table = Table(
        [TableColumn("name", "name"), TableColumn("here")],
        {
            "System": _system(),
            "Required packages": [[package.name, _version(package.name) or "missing"] for package in required],
            "Optional packages": list(_optional(requirements)),
            "Environment": [[name, os.environ.get(name, "not set")] for name in VARIABLES],
        },
        verdict=problems or ["All required packages are installed."],
        named_groups=True,
    )
    table.print()
    if json_file is not None:
        from clip_geometry.files import write_text  # imports NumPy

        write_text(json_file, json.dumps(table.as_dict(), indent=1, ensure_ascii=False) + "\n")
    if problems:
        raise SystemExit(1)


def _system() -> Rows:
    """Return (label, value) of the installation, the machine and the commands of other packages."""
    rows = [
        ["clip-geometry", f"{version('clip-geometry')} in {Path(__file__).parents[1]}"],
        ["Python", f"{platform.python_version()} in {sys.prefix}"],
        ["system", platform.platform()],
        ["CPU", f"{os.cpu_count()} cores, {memory() / 1e9:.1f} GB of memory for this process"],
    ]
    commands = [entry.name for entry in of_packages("clip_geometry.commands")]
    return [*rows, ["GPU", _devices()], ["commands of other packages", ", ".join(commands) or "none"]]


def _devices() -> str:
    """Describe the GPUs that torch can use."""
    try:
        import torch
    except (ImportError, OSError) as error:  # a library that torch needs is missing or has the wrong version
        return f"unknown, torch cannot be imported: {error}"
    if torch.backends.mps.is_available():
        return "Apple MPS, which does not support float64: measures need the CPU"
    gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return ", ".join(f"{gpu.name} ({gpu.total_memory / 1e9:.1f} GB)" for gpu in gpus) or "none that torch can use"


def _optional(requirements: Sequence[Requirement]) -> Iterator[Sequence[str]]:
    """Yield (name, version) of the packages of the extras, or how to install them."""
    for requirement in requirements:
        name = requirement.name
        extra = "" if requirement.marker is None else str(requirement.marker).rpartition("extra == ")[2].strip("\"'")
        if extra and extra not in NOT_LISTED and name != "clip-geometry":
            yield [name, _version(name) or f'not installed; pip install "{name}{requirement.specifier}"']


def _version(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _problem(requirement: Requirement) -> str:
    """Return a sentence about what is wrong with a required package; "" if nothing is wrong."""
    installed = _version(requirement.name)
    if installed is None:
        return f"{requirement.name} is missing."
    fits = requirement.specifier.contains(installed, prereleases=True)
    return "" if fits else f"{requirement.name} is {installed}, but {requirement.specifier} is needed."
