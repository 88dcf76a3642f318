"""A public module without a topic would only fail where the site is built, minutes later."""

import runpy
from pathlib import Path

import pytest

import clip_geometry

SCRIPT = Path(__file__).parents[2] / "scripts" / "site" / "api.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="needs a checkout, with scripts/")
def test_every_public_name_is_on_one_page_of_the_reference():
    text = "\n".join(runpy.run_path(str(SCRIPT))["pages"]().values())
    for name in clip_geometry.__all__:
        assert text.count(f".{name}\n") == 1, name
