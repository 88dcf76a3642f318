"""geometry/ needs torch and jaxtyping and nothing heavier: importing it pulls in no other library."""

import ast
import subprocess
import sys
from pathlib import Path

import clip_geometry.geometry

FOLDER = Path(clip_geometry.geometry.__file__).parent
SOURCES = sorted(
    {*FOLDER.rglob("*.py"), *(FOLDER.parent / "rows").rglob("*.py")} - {FOLDER / "distances" / "_fused.py"}
)  # which imports Triton
STANDARD = {
    "collections",
    "concurrent",
    "copy",
    "dataclasses",
    "functools",
    "contextlib",
    "hashlib",
    "importlib",
    "itertools",
    "math",
    "mmap",
    "numbers",
}
STANDARD |= {"operator", "os", "threading", "typing", "warnings"}


def test_importing_geometry_loads_nothing_heavy():
    heavy = ["open_clip", "transformers", "sklearn", "umap", "matplotlib", "torchvision", "pandas", "scipy", "triton"]
    heavy += ["clip_geometry.evaluate", "clip_geometry.references"]  # which the registry imports when it is asked
    code = f"import sys, clip_geometry.geometry; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_geometry_imports_torch_jaxtyping_and_the_registry_only():
    allowed = STANDARD | {
        "torch",
        "jaxtyping",
        "clip_geometry.registry",
        "clip_geometry.memory",
        "clip_geometry.catalog",
    }
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                known = (
                    name.startswith(("clip_geometry.geometry", "clip_geometry.rows"))
                    or name in allowed
                    or name.split(".")[0] in allowed
                )
                assert known or name == "numpy", f"{path.name} imports {name}"


def test_numpy_is_imported_for_types_and_where_arrays_come_in():
    for path in SOURCES:
        at_import = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not [node for node in at_import if ast.unparse(node).split()[1].startswith("numpy")], path
