"""What tests of several experiments share."""

import os
import warnings
from pathlib import Path

import pytest

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def unrendered(monkeypatch):
    """Figures are drawn, and their files stay empty: to render them takes most of the time, and each run does it."""
    from clip_geometry_experiments.report import figures

    def save(figure, folder, name):
        files = Path(folder, f"{name}.png"), Path(folder, f"{name}.svg")
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return files

    monkeypatch.setattr(figures, "save_figure", save)


@pytest.fixture(scope="session")
def report_of(tmp_path_factory):
    """The smoke report of a config, made once; with CLIP_GEOMETRY_SMOKE, the one that .ci/run has made there."""
    from clip_geometry_experiments.run.runner import run

    before, made = os.environ.get("CLIP_GEOMETRY_SMOKE"), {}
    runs = tmp_path_factory.mktemp("runs")

    def report(name: str) -> Path:
        if before and name not in made:
            (made[name],) = Path(before).glob(f"{name.replace('/', '-')}-smoke-*/report.html")
        elif name not in made:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of maps and classifiers on so few rows
                made[name] = run(CONFIGS / f"{name}.yaml", {}, smoke=True, runs=runs, device="cpu")
        return made[name]

    return report
