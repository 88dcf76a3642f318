"""The figures of the isotropy experiment: the images alone, before the normalization that only I1 and I2 need."""

import numpy as np
import pytest

from clip_geometry.config import validate
from clip_geometry_experiments.report import figures as report_figures
from clip_geometry_experiments.run.runner import RunFolder
from clip_geometry_experiments.tyshchuk2023.isotropy import Isotropy, IsotropyConfig, _isotropy_words

NAMES = ["singular_directions", "cosine_distributions"]


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """(names of the modalities, pipeline) → (experiment, name → figure, name → caption)."""

    def of(modalities, pipeline):
        rng = np.random.default_rng(0)
        for modality in modalities:
            np.save(tmp_path / f"{modality}.npy", rng.normal(size=(60, 12)) * np.arange(1, 13) + 4)
        section = {"name": "tiny", "experiment": "isotropy", "pairs": {"embeddings": str(tmp_path)}}
        planned = Isotropy(
            validate(IsotropyConfig, section | {"pipeline": pipeline, "blocks": 0}, "test"), RunFolder(tmp_path, "cpu")
        )
        figures = {}
        monkeypatch.setattr(
            report_figures, "save_figure", lambda figure, _, name: figures.setdefault(name, figure) and (None, None)
        )
        entries = planned.figures(tmp_path / "figures")
        return planned, figures, {entry.name: entry.caption for entry in entries}

    return of


def spectrum(figure):
    (line,) = figure.axes[1].lines
    return line.get_ydata()


def test_whitened_images_have_a_flat_spectrum(drawn):
    planned, figures, captions = drawn(["image", "text"], ["normalize", "whiten(5)", "normalize"])
    assert list(figures) == NAMES
    values = spectrum(figures["singular_directions"])
    assert len(values) == 5 and values[-1] / values[0] == pytest.approx(1, abs=1e-6)
    for each in captions.values():
        assert "pipeline normalize → whiten(5);" in each
    rows = planned.sets.rows["image"]
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(60))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0.2, 0.4), "far from isotropic"),
        ((0.2, 0.5), "less isotropic than noise"),
        ((0.2, 0.87), "not all less isotropic than noise"),
        ((0.95, 0.95), "not all less isotropic than noise"),
    ],
)
def test_i1_is_judged_by_its_null_value_and_its_error(values, said):
    """The null value is 0.9; with an error of 0.02, 0.87 is within two errors of it."""
    assert _isotropy_words([{"value": value, "standard_error": 0.02, "null_value": 0.9} for value in values]) == said
