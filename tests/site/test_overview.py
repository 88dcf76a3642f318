"""The README says what its figure shows, and the figure shows what is measured."""

import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_readme_says_what_its_figure_shows(monkeypatch):
    data = os.environ.get("CLIP_GEOMETRY_DATA")
    if not data or not (ROOT / "scripts").is_dir():
        pytest.skip("needs a checkout and CLIP_GEOMETRY_DATA, for the embeddings of 500 COCO pairs")
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "site"))
    import overview

    try:
        found = overview.numbers(Path(data, overview.SOURCE))
    finally:
        sys.modules.pop("overview")
    shares = *(found["found"][name] for name in ("center", "posterior")), found["among_captions"]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    said = re.search(r"first for (\S+) of the image queries; .* for (\S+), of (\S+) among", readme)
    assert said and list(said.groups()) == [f"{100 * share.value:.0f}%" for share in shares]
    figure = (ROOT / "docs" / "overview.svg").read_text(encoding="utf-8")
    for text in (f"Two cones, {found['gap']['none']:.2f} apart …", said[1], said[2]):
        assert f"<!-- {text} -->" in figure  # matplotlib says in a comment what it draws as paths
