"""Figures 2-4, 8, 12 and 13 of Tyshchuk et al. 2023 on real CLIP embeddings, as the shipped configs draw them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clip_geometry_experiments.report import figures as report_figures
from clip_geometry_experiments.run.runner import RunFolder, plan, resolve

CONFIGS = Path(__file__).parents[3] / "configs" / "tyshchuk2023"


@pytest.fixture
def planes(coco500, tmp_path, monkeypatch):
    """Name of a config → the figure of the plane and the spectrum of each of its pipelines."""

    def of(name):
        figures = []
        monkeypatch.setattr(report_figures, "save_figure", lambda figure, *_: figures.append(figure) or (None, None))
        values = resolve(CONFIGS / f"{name}.yaml", {"figures": ["singular_directions"]}, smoke=False)
        for kind, config in plan(values, name):
            kind(config, RunFolder(tmp_path, "cpu")).figures(tmp_path)
        return figures

    return of


def drawn(figure):
    """The modalities of the points, and the spectrum beside them."""
    plane, beside = figure.axes
    sets = {gid: each.get_offsets() for each in plane.collections if (gid := each.get_gid()).startswith("points:")}
    (line,) = beside.lines
    assert beside.get_yscale() == "linear"
    (left, right), (bottom, top) = plane.get_xlim(), plane.get_ylim()
    for points in sets.values():
        assert left < points[:, 0].min() and points[:, 0].max() < right
        assert bottom < points[:, 1].min() and points[:, 1].max() < top
    return {gid.removeprefix("points:"): len(points) for gid, points in sets.items()}, line.get_ydata()


def test_figures_2_to_4_show_images_alone_and_whitened_ones_have_a_flat_spectrum(planes, coco500):
    """With a normalization after whitening-128 the last singular value would be 0.518 of the first."""
    found = [drawn(figure) for figure in planes("isotropy_coco500")]
    assert [sets for sets, _ in found] == [{"image": 500}] * 3
    raw, centered, whitened = (values for _, values in found)
    image = coco500[0].astype(np.float64)
    image /= np.linalg.norm(image, axis=1, keepdims=True)
    for rows, values in ((image, raw), (image - image.mean(0), centered)):
        expected = np.linalg.svd(rows, compute_uv=False)
        assert values == pytest.approx(expected / expected[0], abs=1e-6)
    assert len(whitened) == 128 and whitened[-1] / whitened[0] == pytest.approx(1, abs=5e-4)


@pytest.mark.filterwarnings("ignore:procrustes was fitted", "ignore:least_squares was fitted")
def test_figures_8_12_and_13_have_the_spectrum_of_the_stacked_rows(planes, coco500):
    found = [drawn(figure) for figure in planes("joint_distribution_coco500")]
    held_out, seen = {"image": 100, "text": 100}, {"image": 400, "text": 400}
    assert [sets for sets, _ in found] == [held_out] * 3 + [seen] * 3
    order = torch.randperm(500, generator=torch.Generator().manual_seed(0)).numpy()
    for part, (_, values) in ((order[400:], found[0]), (order[:400], found[3])):
        unit = [rows[part] / np.linalg.norm(rows[part], axis=1, keepdims=True) for rows in coco500]
        expected = np.linalg.svd(np.vstack(unit).astype(np.float64), compute_uv=False)
        assert values[: len(expected)] == pytest.approx((expected / expected[0])[: len(values)], abs=1e-6)
