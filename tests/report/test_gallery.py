"""Captions state what is in the rows, and say what was sampled."""

import numpy as np
import pytest

from clip_geometry.report import gallery
from clip_geometry.report.gallery import draw_figures

NAMES = ["singular_directions", "cosine_distributions", "singular_value_decay", "coordinate_spread"]


def clouds(n=40, d=6):
    """Images and texts whose second direction separates them; coordinate 2 rules the images' mean."""
    rng = np.random.default_rng(5)
    image = 0.3 * rng.standard_normal((n, d)) + np.array([1, 0, 5, 0, 0, 0])
    return image, 0.3 * rng.standard_normal((n, d)) + np.array([0, 4, 3, 0, 0, 0])


def draw(image, text, pairs, folder, **options):
    about = {"model": "a model", "dataset": "a set", "pipeline": ["normalize"], "seed": 11}
    return {entry.name: entry for entry in draw_figures(image, text, pairs, folder=folder, **(about | options))}


def mean_cosine(x, y, chosen):
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y)]
    return (unit[0] @ unit[1].T)[chosen].mean()


def test_every_figure_is_saved_and_its_caption_ends_with_its_origin(tmp_path):
    image, text = clouds()
    entries = draw(image, text[:30], None, tmp_path, prefix="run_", group="a run", pipeline=[])
    assert list(entries) == ["run_" + name for name in NAMES]
    for entry in entries.values():
        assert entry.svg_path.parent == tmp_path and entry.svg_path.exists() and entry.png_path.exists()
        assert entry.group == "a run"
        origin = "a model; a set, n = 40 images and 30 texts; pipeline none (raw); seed 11."
        assert entry.caption.endswith(origin)


def test_captions_give_the_numbers_of_the_rows(tmp_path):
    image, text = clouds()
    entries = draw(image, text, (np.arange(40), np.arange(40)), tmp_path)
    values = np.linalg.svd(np.vstack([image, text]), compute_uv=False) ** 2
    shares = values / values.sum()
    caption = entries["singular_directions"].caption
    assert f"hold {shares[0]:.0%} and {shares[1]:.0%}" in caption and "(40 pairs)" in caption
    assert caption.startswith("Along the second direction no image lies among the texts.")
    ratios = [np.divide(*np.linalg.svd(rows, compute_uv=False)[:2]) for rows in (image, text)]
    expected = f"{ratios[0]:.1f} times the second for images and {ratios[1]:.1f} times the second for texts"
    assert expected in entries["singular_value_decay"].caption
    mean = image.mean(0) ** 2
    assert f"coordinate 2 holds {mean[2] / mean.sum():.0%} of the image mean" in entries["coordinate_spread"].caption
    assert entries["coordinate_spread"].caption.startswith("A single coordinate carries much of the mean")


def test_cosines_are_exact_where_all_pairs_fit(tmp_path):
    image, text = clouds()
    pairs = (np.arange(40), np.roll(np.arange(40), 1))
    matching = np.zeros((40, 40), bool)
    matching[pairs] = True
    above = np.triu(np.ones((40, 40), bool), 1)
    means = [
        ("matching pairs", mean_cosine(image, text, matching)),
        ("random image-text pairs", mean_cosine(image, text, ~matching)),
        ("two different images", mean_cosine(image, image, above)),
        ("two different texts", mean_cosine(text, text, above)),
    ]
    caption = draw(image, text, pairs, tmp_path)["cosine_distributions"].caption
    assert caption.startswith("Mean cosines: " + ", ".join(f"{kind} {mean:.2f}" for kind, mean in means))


def test_sampled_cosines_leave_out_pairs_and_a_row_with_itself(monkeypatch):
    monkeypatch.setattr(gallery, "MAX_COSINES", 1000)
    rng = np.random.default_rng(0)
    unit = np.eye(60)
    within = gallery._within(unit, rng)
    matching, random = gallery._across(unit, unit, (np.arange(60), np.arange(60)), rng)
    assert len(within) == 1000 and (within == 0).all()
    assert matching is not None and (matching == 1).all() and len(matching) == 60
    assert (random == 0).all() and 950 < len(random) < 1000


def test_mixed_clouds_are_not_called_separate(tmp_path):
    image, _ = clouds()
    caption = draw(image, image[::-1] + 0.01, None, tmp_path)["singular_directions"].caption
    assert caption.startswith("The image and text rows") and "Lines" not in caption


def test_thinning_is_said(tmp_path):
    rows = np.random.default_rng(1).standard_normal((400, 3))
    caption = draw(rows, rows, (np.arange(400), np.arange(400)), tmp_path)["singular_directions"].caption
    assert "(300 pairs of 400, chosen at random)" in caption


@pytest.mark.parametrize("modality", ["image", "text"])
def test_one_modality(tmp_path, modality):
    rows = clouds()[0]
    sets = {"image": None, "text": None} | {modality: rows}
    entries = draw(sets["image"], sets["text"], None, tmp_path)
    assert list(entries) == NAMES
    assert f"n = 40 {modality}s;" in entries["coordinate_spread"].caption
    assert f"two different {modality}s" in entries["cosine_distributions"].caption


def test_two_rows_of_one_column(tmp_path):
    entries = draw(np.array([[1.0], [2.0]]), np.array([[3.0], [5.0]]), None, tmp_path)
    assert list(entries) == NAMES[1:]
