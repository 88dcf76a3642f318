"""docs/architecture.md names what is there, and the README is short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY, EXPERIMENTS = (ROOT / "src" / name for name in ("clip_geometry", "clip_geometry_experiments"))
PAGE = ROOT / "docs" / "architecture.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs a checkout, with docs/")


def folders(package: Path) -> set[str]:
    """The folders of a package that contain modules."""
    return {path.parent.name for path in package.glob("*/__init__.py")}


def test_every_file_that_the_page_names_exists():
    named = re.findall(r"`([\w/]+(?:\.py|\.j2|\.yaml|/))`", PAGE.read_text(encoding="utf-8"))
    missing = [name for name in named if not any((home / name).exists() for home in (LIBRARY, EXPERIMENTS, ROOT))]
    assert len(named) > 40 and missing == []


def test_the_page_names_every_folder_of_both_packages():
    library, _, rest = PAGE.read_text(encoding="utf-8").partition("\n## The experiments")
    experiments = rest.partition("\n## ")[0]
    for package, text in ((LIBRARY, library), (EXPERIMENTS, experiments)):
        lines = re.findall(r"^    ((?:\w+ {1,2})*\w+)(?: {2,}|$)", text, re.M)
        assert folders(package) <= {word for line in lines for word in line.split()}, package


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700
