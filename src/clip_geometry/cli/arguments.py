"""Checks names and paths of a command line against the catalogs, before torch is imported."""

import re
import sys
from collections.abc import Collection
from pathlib import Path

from clip_geometry import catalog
from clip_geometry.catalog import PACKAGE
from clip_geometry.paths import existing
from clip_geometry.registry import parts, unknown


def measure_names() -> list[str]:
    """The names of all measures and evaluators."""
    names = catalog.names()
    return list(dict.fromkeys((*names, *(name.partition(".")[0] for name in names if "." in name))))


def step_names() -> list[str]:
    return list(catalog.read(PACKAGE / "transforms"))


def repair_names() -> list[str]:
    return list(catalog.read(PACKAGE / "search" / "repairs"))


def check_embeddings(*paths: Path | None) -> None:
    for path in paths:
        if path is not None:
            existing(path, "a file of embeddings")


def check_pipeline(steps: str | None) -> None:
    """Checks the names of the steps of a pipeline."""
    for step in parts(steps or ""):
        name = re.split(r"[(\[]", step, maxsplit=1)[0].strip()
        if re.fullmatch(r"\w+", name):  # the parser explains anything else better
            require("pipeline step", name, step_names(), "clip-geometry list transforms")


def check_measures(given: str | None) -> None:
    """Checks names of measures and of evaluators; evaluators themselves check the names of their numbers."""
    known = measure_names()
    for name in parts(given or ""):
        if name.partition(".")[0] not in known:
            require("measure", name, known, "clip-geometry list measures")


def check_repairs(given: str | None, *, steps: bool = False) -> None:
    """Checks names of repairs, which may be steps of a pipeline, too, where `steps` is true."""
    for name in parts(given or ""):
        if not steps or re.split(r"[(\[]", name, maxsplit=1)[0] not in step_names():
            require("repair", name, repair_names(), "clip-geometry list repairs")


def require(kind: str, name: str, known: Collection[str], listed_by: str) -> None:
    """Raises InputError for a name that is not known, unless torch is imported: then a program may have registered it,
    and looking is cheap."""
    if name not in known and "torch" not in sys.modules:
        raise unknown(kind, name, known, listed_by)
