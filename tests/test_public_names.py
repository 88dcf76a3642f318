"""The public names: few at the top level, each with one home, and all that docs and scripts use."""

import pydoc
import re
from importlib import import_module
from pathlib import Path

import pytest

import clip_geometry as cg
from support.public import HOMES, SUBPACKAGES

ROOT = Path(__file__).parents[1]


def test_names_resolve_and_have_one_home():
    assert SUBPACKAGES == ["data", "encoders", "evaluate", "geometry", "search", "training", "transforms"]
    assert len(dir(cg)) <= 45
    found: dict[str, str] = {}
    for home, package in HOMES.items():
        assert package is cg or dir(package) == sorted(package.__all__)
        for name in dir(package):
            assert getattr(package, name) is not None
            assert name not in found, (name, home, found.get(name))
            found[name] = home


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(cg, "isoscor") and not hasattr(cg.search, "diagnos") and not hasattr(cg.training, "losse")


@pytest.mark.parametrize("folder", ["docs", "scripts", "README.md"])
def test_docs_and_scripts_use_public_names(folder):
    """Of what they write as `cg.…`; a script may import a module of the package for what is not public."""
    place = ROOT / folder
    files = [place] if place.is_file() else [p for p in place.rglob("*") if p.suffix in (".md", ".py", ".ipynb", ".j2")]
    used = {name for path in files for name in re.findall(r"\bcg((?:\.[A-Za-z_]\w*)+)", path.read_text())}
    assert used
    for chain in used:
        first, *rest = chain.removeprefix(".").split(".")
        assert first in dir(cg), chain
        if first in SUBPACKAGES and rest:
            assert rest[0] in dir(import_module(f"clip_geometry.{first}")), chain


def test_help_fits_on_a_screen():
    assert len(pydoc.render_doc(cg).splitlines()) <= 60
