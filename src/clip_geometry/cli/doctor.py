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
    requirements = [Requirement(each) for each in requires("clip-geometry") or ()]
    needed = [each for each in requirements if each.marker is None]
    problems = [(each.name, problem) for each in needed if (problem := _problem(each))]
    table = Table(
        [TableColumn("name", "name"), TableColumn("here")],
        {
            "System": _system(),
            "Required packages": [[each.name, _version(each.name) or "missing"] for each in needed],
            "Optional packages": list(_optional(requirements)),
            "Environment": [[name, os.environ.get(name, "not set")] for name in VARIABLES],
        },
        verdict=[f"{name} {problem}." for name, problem in problems] or ["All required packages are installed."],
        named_groups=True,
    )
    table.print()
    if json_file is not None:
        from clip_geometry.files import write_text  # imports NumPy

        write_text(json_file, json.dumps(table.as_dict(), indent=1, ensure_ascii=False) + "\n")
    if problems:
        raise SystemExit(1)


def _system() -> Rows:
    rows = [
        ["clip-geometry", f"{version('clip-geometry')} in {Path(__file__).parents[1]}"],
        ["Python", f"{platform.python_version()} in {sys.prefix}"],
        ["system", platform.platform()],
        ["CPU", f"{os.cpu_count()} cores, {memory() / 1e9:.1f} GB of memory for this process"],
    ]
    commands = [entry.name for entry in of_packages("clip_geometry.commands")]
    return [*rows, ["GPU", _devices()], ["commands of other packages", ", ".join(commands) or "none"]]


def _devices() -> str:
    try:
        import torch
    except (ImportError, OSError) as error:  # a library that torch needs is missing or has the wrong version
        return f"unknown, torch cannot be imported: {error}"
    found = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        return "Apple MPS, which has no float64: measures need the CPU"
    return ", ".join(f"{each.name} ({each.total_memory / 1e9:.1f} GB)" for each in found) or "none that torch can use"


def _optional(requirements: Sequence[Requirement]) -> Iterator[Sequence[str]]:
    """Yield (name, version) of the packages of the extras, or how to install them."""
    for each in requirements:
        extra = "" if each.marker is None else str(each.marker).rpartition("extra == ")[2].strip("\"'")
        if extra and extra not in NOT_LISTED and each.name != "clip-geometry":
            yield [each.name, _version(each.name) or f'not installed; pip install "{each.name}{each.specifier}"']


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _problem(requirement: Requirement) -> str:
    """Return what is wrong with a required package, "" if nothing is wrong."""
    found = _version(requirement.name)
    if found is None:
        return "is missing"
    fits = requirement.specifier.contains(found, prereleases=True)
    return "" if fits else f"is {found}, but {requirement.specifier} is needed"
