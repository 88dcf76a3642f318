"""A new experiment is one folder and one config: what it shows is in its report, and nothing else is touched."""

import importlib
import sys
from pathlib import Path

import pytest

from clip_geometry.cli import app
from clip_geometry.results import read_rows
from clip_geometry_experiments.kit.base import experiments

FOLDER = Path(__file__).parents[1] / "support" / "toy"


@pytest.fixture
def toy(monkeypatch):
    """The folder as if it lay among the experiments: found by its name, imported when asked for."""

    def forget():
        experiments._members.pop("toy", None)
        sys.modules.pop("support.toy", None)

    forget()  # a test of the same process may have imported it
    monkeypatch.setitem(experiments.homes, "toy", "support.toy")  # pyright: ignore[reportArgumentType]
    yield
    forget()


def test_a_folder_and_a_config_are_an_experiment(toy, tmp_path):
    assert "support.toy" not in sys.modules and "toy" in experiments
    with pytest.raises(SystemExit) as done:
        app(["run", str(FOLDER / "toy.yaml"), "--runs", str(tmp_path)])
    assert done.value.code == 0
    (folder,) = tmp_path.glob("toy-*")
    rows = list(read_rows(folder / "results.jsonl"))
    assert [row["at"]["shift"] for row in rows] == [0, 2, 6]
    assert rows[0]["value"] < rows[1]["value"] < rows[2]["value"]
    page = (folder / "report.html").read_text(encoding="utf-8")
    expected = f"A shift of 6 raises the average cosine from {rows[0]['value']:.3f} to {rows[2]['value']:.2f}."
    for text in (expected, "A cone from a shift", "Average cosine of a shifted Gaussian", "distance of their mean"):
        assert text in page
    assert (folder / "figures" / "toy.svg").is_file()
    assert importlib.import_module("support.toy").Toy is experiments["toy"]
