"""The house: imports run downwards only, and the public names resolve."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import clip_geometry

ROOT = Path(__file__).parents[1]
PACKAGE = Path(clip_geometry.__file__).parent
# Each layer may import those below it, and itself. The picture is in docs/architecture.md.
LAYERS = [
    {"integrations"},
    {"cli"},
    {"runner"},
    {"parts"},
    {"experiments"},
    {"ledger"},
    {"explorer"},
    {"diagnosis", "shipping"},
    {"measurement"},
    {"report"},
    {"measuring"},
    {"formats"},
    {"embedding"},
    {"repairs", "index_map"},
    {"evaluators", "references", "encoders", "data", "tasks"},
    {"embeddings", "results"},
    {"planes", "transforms", "losses", "files", "progress", "versions"},
    {"geometry"},
    {"config"},
    {"reading"},
    {"memory", "modalities", "paths"},
    {"registry"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clip_geometry"):
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]


def test_every_module_has_its_layer():
    unlayered = {"__init__", "__pycache__", "assets", "py"}  # py.typed
    assert {path.stem for path in PACKAGE.iterdir()} - unlayered <= set(LEVEL)


def test_imports_run_downwards():
    found = [
        (path, unit, name)
        for path in sorted(PACKAGE.rglob("*.py"))
        if (unit := path.relative_to(PACKAGE).parts[0].removesuffix(".py")) in LEVEL
        for name in imported(path)
    ]
    assert len(found) > 100
    assert [(path.name, name) for path, unit, name in found if LEVEL[name] < LEVEL[unit]] == []


def test_experiments_import_the_kit_and_never_each_other():
    """A slice is a folder that registers an experiment; folders of papers only hold slices."""
    home = PACKAGE / "experiments"
    slices = [path.parent for path in home.rglob("__init__.py") if "experiments.add(" in path.read_text()]
    assert len(slices) > 15
    for folder in slices:
        allowed = ("clip_geometry_experiments.kit", "clip_geometry." + ".".join(folder.relative_to(PACKAGE).parts))
        for path in folder.glob("*.py"):
            found = [
                node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
            ]
            others = [name for name in found if name.startswith("clip_geometry_experiments.")]
            assert all(name.startswith(allowed) for name in others), (path, others)


def test_public_names_resolve():
    for name in clip_geometry.__all__:
        assert name == "measures" or getattr(clip_geometry, name).__name__.endswith(name)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(clip_geometry, "isoscor")


def test_importing_the_package_is_light():
    code = "import sys, clip_geometry; print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_shipped_models_are_the_only_binaries():
    """Whatever else is tracked has come in by mistake."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(listed.stderr)  # a checkout of another user's, say
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    binary = {path.relative_to(ROOT).as_posix() for path in files if path.is_file() and b"\0" in path.read_bytes()}
    models = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("src/clip_geometry/assets/*/*.safetensors")}
    assert binary == models and len(models) == 2
