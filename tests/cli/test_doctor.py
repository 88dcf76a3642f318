"""`doctor`: what is installed here, and what is wrong with it."""

import json
import sys
from importlib.metadata import requires, version
from pathlib import Path

from clip_geometry.cli import doctor


def rows_of(cli, status=0):
    assert cli("doctor", "--json", "doctor.json").status == status
    found = json.loads(Path("doctor.json").read_text())
    return found["verdict"], {row[0]: row[1] for group in found["groups"] for row in group["rows"]}


def test_versions_devices_packages_and_folders(cli, monkeypatch):
    monkeypatch.setenv("CLIP_GEOMETRY_DATA", "/some/folder")
    verdict, rows = rows_of(cli)
    assert verdict == ["All required packages are installed."]
    assert rows["clip-geometry"].startswith(version("clip-geometry")) and rows["torch"] == version("torch")
    assert rows["CLIP_GEOMETRY_DATA"] == "/some/folder" and "cores" in rows["CPU"]


def test_old_and_missing_packages_are_named_with_status_1(cli, monkeypatch):
    listed = ["numpy>=99", "no-such-package>=1", 'also-missing>=2; extra == "ship"', *(requires("clip-geometry") or [])]
    monkeypatch.setattr(doctor, "requires", lambda _: listed)
    verdict, rows = rows_of(cli, status=1)
    assert verdict == [f"numpy is {version('numpy')}, but >=99 is needed.", "no-such-package is missing."]
    assert rows["also-missing"] == 'not installed; pip install "also-missing>=2"'


def test_a_torch_that_cannot_be_imported_is_no_traceback(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "torch cannot be imported" in rows_of(cli)[1]["GPU"]
