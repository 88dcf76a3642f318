"""Checks paths and names of a command line before torch is imported.

The names and the lists are read from lists.json, which scripts/build_docs.py makes from the registries.
"""

import functools
import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from clip_geometry import catalog
from clip_geometry.paths import existing, existing_file, expanded
from clip_geometry.registry import InputError, of_packages, shown, unknown

FILE = Path(__file__).with_name("lists.json")
EMBEDDINGS = "a file of embeddings"
LISTS = ("measures", "evaluators", "models", "datasets", "formats", "transforms", "repairs", "checks")


@functools.cache
def shipped() -> dict[str, Any]:
    """`blocks`: list → its blocks (a head and the paragraphs below it). `index`: list → its lines (group, name, what it
    is, variants). `names`: kind of thing → its names, those of measures from their catalog."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    measures = [*catalog.names(), *(name.evaluator or "" for name in map(catalog.describe, catalog.names()))]
    found["names"]["measure"] = [*dict.fromkeys(filter(None, measures))]
    return found


@functools.cache
def all_lists() -> dict[str, Any]:
    """`shipped` and the lists of other packages.

    The entry points of the group `clip_geometry.lists` are functions that return such a mapping; none imports torch.
    """
    found = {part: dict(lists) for part, lists in shipped().items()}
    for entry in of_packages("clip_geometry.lists"):
        for part, lists in entry.load()().items():
            for what, lines in lists.items():
                found[part][what] = [*found[part].get(what, ()), *lines]
    return found


def check_embeddings(*paths: Path | None) -> None:
    for path in paths:
        if path is not None:
            existing(path, EMBEDDINGS)


def check_pipeline(steps: str | None) -> None:
    """Checks the names of the steps of a pipeline."""
    for step in parts(steps or ""):
        name = re.split(r"[(\[]", step, maxsplit=1)[0].strip()
        if re.fullmatch(r"\w+", name):  # the parser explains anything else better
            _require("pipeline step", name, "clip-geometry list transforms")


def check_measures(given: str | None) -> None:
    """Checks names of measures and of evaluators; evaluators themselves check the names of their numbers."""
    for name in map(str.strip, parts(given or "")):
        if name.partition(".")[0] not in shipped()["names"]["measure"]:
            _require("measure", name, "clip-geometry list measures")


def check_repairs(given: str | None) -> None:
    """Checks names of repairs."""
    for name in map(str.strip, parts(given or "")):
        _require("repair", name, "clip-geometry list repairs")


def check_shown_repairs(given: str | None) -> None:
    """Checks names of repairs, which may be steps of a pipeline, too."""
    for name in map(str.strip, parts(given or "")):
        step = re.split(r"[(\[]", name, maxsplit=1)[0]
        if step not in shipped()["names"]["pipeline step"]:
            _require("repair", name, "clip-geometry list repairs")


def check_shipment(to: str, map_file: Path, sources: Sequence[Path], out: Path, modality: str | None) -> None:
    """Checks the target, the new folder, and whether rows in .npy files have the dimension that the map takes."""
    from clip_geometry.files import require_new_folder

    _require("target", to, "clip-geometry ship --help")
    require_new_folder(expanded(out))
    dimensions = _dimensions(
        existing_file(map_file, "a map (.safetensors) written by fit, or a repair written by diagnose")
    )
    equal = len(set(dimensions.values())) == 1
    for source in map(expanded, sources):
        for path in sorted(source.glob("*.npy")) if source.is_dir() else [source]:
            d = _columns(path)
            expected = next(iter(dimensions.values())) if equal else dimensions.get(modality or path.stem)
            if None not in (d, expected) and d != expected:
                raise InputError(
                    f"{shown(path)} has rows of dimension {d}, but {shown(map_file)} takes rows of dimension "
                    f"{expected}; give the embeddings that it was fitted for"
                )


def _dimensions(map_file: Path) -> Mapping[str, int]:
    """Modality → dimension of the rows that a map or a repair takes, as its header says; empty where it does not, which
    reading the file explains."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(map_file), "np") as file:
            for facts in map(json.loads, (file.metadata() or {}).values()):
                if "dimensions" in facts:  # of a map
                    return {name: int(d_in) for name, (d_in, _) in facts["dimensions"].items()}
                names = {*file.keys()}
                of_map = {name: f"map.{number}" for name, number in facts["views"][0]["items"].items()}
                tensors = {name: f"{each}.W" if f"{each}.W" in names else f"{each}.b" for name, each in of_map.items()}
                return {name: int(file.get_slice(tensor).get_shape()[0]) for name, tensor in tensors.items()}
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        pass
    return {}


def _columns(path: Path) -> int | None:
    """Number of columns of the matrix in a .npy file; None of any other file."""
    from clip_geometry.reading import npy_header

    try:
        with path.open("rb") as file:
            shape, _ = npy_header(file, path, path.stat().st_size)
    except (OSError, InputError):
        return None
    return shape[1] if len(shape) == 2 else None


def _require(kind: str, name: str, listed_by: str) -> None:
    require(kind, name, shipped()["names"][kind], listed_by)


def require(kind: str, name: str, known: Collection[str], listed_by: str) -> None:
    """Raises InputError for a name that is not known, unless torch is imported: then a program may have registered it,
    and looking is cheap."""
    if name not in known and "torch" not in sys.modules:
        raise unknown(kind, name, known, listed_by)


def parts(text: str) -> list[str]:
    """Splits at commas outside of brackets."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]
