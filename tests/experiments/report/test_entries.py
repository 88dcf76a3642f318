"""Captions state what is in the rows, and say what was sampled."""

import numpy as np
import pytest

from clip_geometry_experiments.report import figures
from clip_geometry_experiments.report.figures import STANDARD, draw_figures, save_drawings

pytestmark = pytest.mark.usefixtures("unrendered")


def clouds(n=40, d=6):
    """Images and texts whose second direction separates them."""
    rng = np.random.default_rng(5)
    image = 0.3 * rng.standard_normal((n, d)) + np.array([1, 0, 5, 0, 0, 0])
    return image, 0.3 * rng.standard_normal((n, d)) + np.array([0, 4, 3, 0, 0, 0])


def draw(image, text, pairs, folder, **options):
    about = {"model": "a model", "dataset": "a set", "pipeline": ["normalize"], "seed": 11}
    saved = {key: options.pop(key) for key in ("prefix", "group") if key in options}
    names = options.pop("names", STANDARD)
    entries = save_drawings(draw_figures(image, text, pairs, about | options, names), folder, **saved)
    return {entry.name: entry for entry in entries}


def caption_of(name, image, text, pairs, folder, **options):
    """Of the one figure that is drawn."""
    return draw(image, text, pairs, folder, names=(name,), **options)[name].caption


def mean_cosine(x, y, chosen):
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y)]
    return (unit[0] @ unit[1].T)[chosen].mean()


def test_captions_give_the_numbers_of_the_rows(tmp_path):
    image, text = clouds()
    entries = draw(image, text, (np.arange(40), np.arange(40)), tmp_path)
    values = np.linalg.svd(np.vstack([image, text]), compute_uv=False) ** 2
    shares = values / values.sum()
    caption = entries["singular_directions"].caption
    assert f"hold {shares[0]:.0%} and {shares[1]:.0%}" in caption and "(40 pairs)" in caption
    assert caption.startswith("Along the second direction all images lie on one side of all texts.")


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
    caption = caption_of("cosine_distributions", image, text, pairs, tmp_path)
    assert caption.startswith("Mean cosines: " + ", ".join(f"{kind} {mean:.2f}" for kind, mean in means))


def test_sampled_cosines_leave_out_pairs_and_a_row_with_itself(monkeypatch):
    monkeypatch.setattr(figures, "MAX_COSINES", 1000)
    rng = np.random.default_rng(0)
    unit = np.eye(60)
    kinds, sampled = figures.sampled_cosines({"image": unit, "text": unit}, (np.arange(60), np.arange(60)), rng)
    matching, random, within, _ = kinds.values()
    assert sampled and len(within) == 1000 and (within == 0).all()
    assert (matching == 1).all() and len(matching) == 60
    assert (random == 0).all() and 950 < len(random) < 1000


def test_mixed_clouds_are_not_called_separate(tmp_path):
    image, _ = clouds()
    caption = caption_of("singular_directions", image, image[::-1] + 0.01, None, tmp_path)
    assert caption.startswith("The image and text rows") and "Lines" not in caption


def test_a_zero_row_costs_only_the_cosines(tmp_path):
    image, text = clouds()
    text[3] = 0
    entries = draw(image, text, None, tmp_path, pipeline=[])
    assert [name for name, entry in entries.items() if entry.svg_path is None] == ["cosine_distributions"]
    assert entries["cosine_distributions"].caption.startswith("Not drawn: text has a zero row (row 3)")
    assert not list(tmp_path.glob("cosine*")) and len(list(tmp_path.iterdir())) == 2
