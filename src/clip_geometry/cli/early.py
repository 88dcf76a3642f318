"""Checks paths and names of a command line before torch is imported.

The names and the lists are read from lists.json, which scripts/build_docs.py makes from the registries.
"""

import functools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clip_geometry.paths import existing
from clip_geometry.registry import unknown

FILE = Path(__file__).with_name("lists.json")
EMBEDDINGS = "a file of embeddings"


@functools.cache
def shipped() -> dict[str, Any]:
    """`blocks`: list → its blocks (a head and the paragraphs below it). `index`: list → its lines (group, name, what it
    is, variants). `names`: kind of thing → its names."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def check_embeddings(*paths: Path | None) -> None:
    for path in paths:
        if path is not None:
            existing(path, EMBEDDINGS)


def check_pipeline(steps: str | None) -> None:
    """Checks the names of the steps of a pipeline."""
    for step in _parts(steps or ""):
        name = re.split(r"[(\[]", step, maxsplit=1)[0].strip()
        if re.fullmatch(r"\w+", name):  # the parser explains anything else better
            _require("pipeline step", name, "transforms")


def check_measures(given: str | None) -> None:
    """Checks names of measures and of evaluators; evaluators themselves check the names of their numbers."""
    for name in map(str.strip, _parts(given or "")):
        if name.partition(".")[0] not in shipped()["names"]["measure"]:
            _require("measure", name, "measures")


def check_repairs(given: str | None) -> None:
    """Checks names of repairs."""
    for name in map(str.strip, _parts(given or "")):
        _require("repair", name, "repairs")


def check_config(config: Path, overrides: Sequence[str]) -> None:
    """Checks that the config exists, and the names of its experiments, unless an override, smoke or sweep may replace
    them."""
    from clip_geometry.config import find_config, read_yaml

    values: Any = read_yaml(find_config(config))
    if any("experiment" in str(key) for key in (*overrides, values.get("smoke"), values.get("sweep"))):
        return
    parts = values.get("parts")
    for part in parts if isinstance(parts, list) else [values]:
        name = part.get("experiment") if isinstance(part, dict) else None
        if isinstance(name, str):
            _require("experiment", name, "experiments")


def _require(kind: str, name: str, listed: str) -> None:
    known = shipped()["names"][kind]
    if (
        name not in known and "torch" not in sys.modules
    ):  # otherwise a program may have registered it, and looking is cheap
        raise unknown(kind, name, known, f"clip-geometry list {listed}")


def _parts(text: str) -> list[str]:
    """Splits at commas outside of brackets."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]
