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
# Each layer may import those below it, and itself. The picture is in docs/architecture.md. A module of a package may
# have a layer of its own: what guards all that is read is at the bottom, the formats of embeddings are at the top.
LAYERS = [
    {"training"},
    {"cli"},
    {"explorer"},
    {"search"},
    {"measuring"},
    {"display"},
    {"search.checks"},  # which `measure` runs, too
    {"display.words", "display.numbers"},
    {"io"},
    {"embedding"},
    {"search.repairs", "search.index_map", "search.relevance"},
    {"evaluate", "references", "encoders", "data"},
    {"embeddings", "results", "tokens"},
    {"transforms", "files"},
    {"geometry"},
    {"rows"},
    {"catalog", "config", "steps"},
    {"io.reading"},
    {"memory", "modalities", "paths", "progress"},
    {"registry", "deprecation"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def unit(parts):
    """The name in LEVEL of a module, given as the parts of its name."""
    own = ".".join(parts[:2]).removesuffix(".py")
    return own if own in LEVEL else parts[0].removesuffix(".py")


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "clip_geometry":
            parts = node.module.split(".")[1:]
            yield from {unit([*parts, alias.name]) for alias in node.names}


def test_every_module_has_its_layer():
    unlayered = {"__init__", "__main__", "__pycache__", "assets", "py"}  # py.typed
    assert {path.stem for path in PACKAGE.iterdir()} - unlayered <= set(LEVEL)


def test_imports_run_downwards():
    found = [
        (path, own, name)
        for path in sorted(PACKAGE.rglob("*.py"))
        if (own := unit(path.relative_to(PACKAGE).parts)) in LEVEL
        for name in imported(path)
    ]
    assert len(found) > 100
    assert [(path.name, name) for path, own, name in found if LEVEL[name] < LEVEL[own]] == []


def test_the_library_knows_nothing_of_the_experiments():
    """It finds their commands, lists and experiments through entry points."""
    assert [path for path in PACKAGE.rglob("*.py") if "clip_geometry_experiments" in path.read_text()] == []


def test_experiments_import_what_is_shared_and_never_each_other():
    """An experiment is a folder that registers one; folders of papers and of studies only hold experiments."""
    home = PACKAGE.parent / "clip_geometry_experiments"
    if not home.is_dir():
        pytest.skip("the experiments are not installed")
    shared = tuple(f"clip_geometry_experiments.{name}" for name in ("kit", "tasks", "report"))
    folders = [path.parent for path in home.rglob("__init__.py") if "experiments.add(" in path.read_text()]
    assert len(folders) > 12
    for folder in folders:
        own = ".".join(folder.relative_to(home.parent).parts)
        for path in folder.glob("*.py"):
            nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
            others = [node.module for node in nodes if (node.module or "").startswith("clip_geometry_experiments.")]
            assert all(name.startswith((*shared, own)) for name in others), (path, others)


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
    golden = {"tests/golden.json.xz"}  # values before the split into two packages, until they are removed again
    assert binary - golden == models and len(models) == 2
