"""What tests of several experiments share."""

from pathlib import Path

import pytest


@pytest.fixture
def unrendered(monkeypatch):
    """Figures are drawn, and their files stay empty: to render them takes most of the time, and each run does it."""
    from clip_geometry_experiments.report import gallery

    def save(figure, folder, name):
        files = Path(folder, f"{name}.png"), Path(folder, f"{name}.svg")
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return files

    monkeypatch.setattr(gallery, "save_figure", save)
