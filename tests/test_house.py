"""The house: imports run downwards only, and the public names resolve."""

import ast
from pathlib import Path

import clip_geometry

PACKAGE = Path(clip_geometry.__file__).parent
# Each layer may import those below it, and itself. DESIGN.md's picture, with what supports it.
LAYERS = [
    {"cli"},
    {"runner"},
    {"experiments"},
    {"report"},
    {"results", "embed"},
    {"evaluators", "encoders", "data"},
    {"store", "formats", "embeddings", "transforms", "files", "progress", "versions"},
    {"geometry"},
    {"config"},
    {"registry"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clip_geometry"):
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]


def test_every_module_has_its_layer():
    unlayered = {"__init__", "__pycache__", "assets"}
    assert {path.stem for path in PACKAGE.iterdir()} - unlayered <= set(LEVEL)
