"""Captions state what is in the rows, and say what was sampled."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from clip_geometry_experiments.report import figures
from clip_geometry_experiments.report.figures import new_axes
from clip_geometry_experiments.report.gallery import Drawing, draw_figures, in_words, save_drawings, save_figure

pytestmark = pytest.mark.usefixtures("unrendered")

NAMES = ["singular_directions", "cosine_distributions", "singular_value_decay", "coordinate_spread"]


def clouds(n=40, d=6):
    """Images and texts whose second direction separates them; coordinate 2 rules the images' mean."""
    rng = np.random.default_rng(5)
    image = 0.3 * rng.standard_normal((n, d)) + np.array([1, 0, 5, 0, 0, 0])
    return image, 0.3 * rng.standard_normal((n, d)) + np.array([0, 4, 3, 0, 0, 0])


def draw(image, text, pairs, folder, **options):
    about = {"model": "a model", "dataset": "a set", "pipeline": ["normalize"], "seed": 11}
    saved = {key: options.pop(key) for key in ("prefix", "group") if key in options}
    entries = save_drawings(draw_figures(image, text, pairs, **about | options), folder, **saved)
    return {entry.name: entry for entry in entries}


def caption_of(name, image, text, pairs, folder, **options):
    """Of the one figure that is drawn."""
    return draw(image, text, pairs, folder, names=(name,), **options)[name].caption


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
        origin = "a model; a set, n = 40 images and 30 texts; pipeline raw; seed 11."
        assert entry.caption.endswith(origin)


def test_the_bytes_of_a_file_depend_on_the_rows_only(tmp_path):
    about = {"model": "a model", "dataset": "a set", "pipeline": []}
    for folder in ("a", "b"):
        for name, drawing in draw_figures(*clouds(), None, **about).items():
            save_figure(drawing.figure, tmp_path / folder, name)
    paths = list((tmp_path / "a").iterdir())
    assert len(paths) == 2 * len(NAMES)
    for path in paths:
        assert path.stat().st_size > 1000 and path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_captions_give_the_numbers_of_the_rows(tmp_path):
    image, text = clouds()
    entries = draw(image, text, (np.arange(40), np.arange(40)), tmp_path)
    values = np.linalg.svd(np.vstack([image, text]), compute_uv=False) ** 2
    shares = values / values.sum()
    caption = entries["singular_directions"].caption
    assert f"hold {shares[0]:.0%} and {shares[1]:.0%}" in caption and "(40 pairs)" in caption
    assert caption.startswith("Along the second direction all images lie on one side of all texts.")
    ratios = [np.divide(*np.linalg.svd(rows, compute_uv=False)[:2]) for rows in (image, text)]
    expected = f"{ratios[0]:.1f} times the second for images and {ratios[1]:.1f} times the second for texts"
    assert expected in entries["singular_value_decay"].caption
    mean = image.mean(0) ** 2
    told = (
        f"Coordinate 2 alone holds {mean[2] / mean.sum():.0%} of the image mean's squared length and coordinate 1 alone"
    )
    assert entries["coordinate_spread"].caption.startswith(told)


def test_a_share_is_only_pointed_to_where_it_is_large(tmp_path):
    rows = np.random.default_rng(4).standard_normal((50, 40)) * 0.1 + 1
    share = np.max(rows.mean(0) ** 2) / np.sum(rows.mean(0) ** 2)
    told = f"Coordinate {rows.mean(0).argmax()} holds {share:.0%} of the image mean's squared length."
    assert caption_of("coordinate_spread", rows, None, None, tmp_path).startswith(told)


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


def test_separation_along_the_first_direction_is_said_too(tmp_path):
    image, text = clouds()
    shared = np.concatenate([image, text]).mean(0)
    caption = caption_of("singular_directions", image - shared, text - shared, None, tmp_path)
    assert caption.startswith("Along the first direction all images lie on one side of all texts.")


def test_thinning_is_said(tmp_path):
    rows = np.random.default_rng(1).standard_normal((400, 3))
    caption = caption_of("singular_directions", rows, rows, (np.arange(400), np.arange(400)), tmp_path)
    assert "(300 pairs of 400, chosen at random)" in caption


@pytest.mark.parametrize("modality", ["image", "text"])
def test_one_modality(tmp_path, modality):
    rows = clouds()[0]
    sets = {"image": None, "text": None} | {modality: rows}
    entries = draw(sets["image"], sets["text"], None, tmp_path)
    assert list(entries) == NAMES
    assert f"n = 40 {modality}s;" in entries["coordinate_spread"].caption
    assert f"two different {modality}s" in entries["cosine_distributions"].caption


def test_options_stand_in_the_captions(tmp_path):
    options = {"model_options": {"seed": 1, "zero_bias": True}, "data_options": {"size": 40}}
    caption = caption_of("coordinate_spread", *clouds(), None, tmp_path, **options)
    assert caption.endswith(
        "a model (seed 1, zero_bias); a set (size 40), n = 40 images and 40 texts; pipeline normalize; seed 11."
    )


def test_a_zero_row_costs_only_the_cosines(tmp_path):
    image, text = clouds()
    text[3] = 0
    entries = draw(image, text, None, tmp_path, pipeline=[])
    assert [name for name, entry in entries.items() if entry.svg_path is None] == ["cosine_distributions"]
    assert entries["cosine_distributions"].caption.startswith("Not drawn: text has a zero row (row 3)")
    assert not list(tmp_path.glob("cosine*")) and len(list(tmp_path.iterdir())) == 6


def test_sets_of_different_dimension_are_drawn_without_what_needs_one_space(tmp_path):
    image, text = clouds()
    names = ("singular_directions", "cosine_distributions")
    entries = draw(image, text[:, :4], (np.arange(40), np.arange(40)), tmp_path, names=names)
    assert entries["singular_directions"].svg_path is None
    assert "rows have 4 and 6 columns" in entries["singular_directions"].caption
    caption = entries["cosine_distributions"].caption
    assert "two different images" in caption and "pairs" not in caption
    assert "Images and texts have different dimensions, so there are no cosines between them." in caption


def test_a_mean_that_centering_left_is_not_taken_apart(tmp_path):
    image, text = clouds()
    centered = image - image.mean(0)
    caption = caption_of("coordinate_spread", centered, text, None, tmp_path, pipeline=["center[image]"])
    assert caption.startswith("The image mean is zero up to rounding and coordinate 1 alone holds")
    caption = caption_of("coordinate_spread", centered, None, None, tmp_path)
    assert caption.startswith("The image mean is zero up to rounding. Standard deviation of every coordinate")


def test_rank_one_rows_have_no_second_singular_value(tmp_path):
    rows = np.outer(np.arange(1.0, 9), np.arange(1.0, 6))
    entries = draw(rows, None, None, tmp_path, names=("singular_value_decay", "singular_directions"))
    assert "is over 1,000,000 times the second for images" in entries["singular_value_decay"].caption
    assert "which hold 100% and 0% of their squared length" in entries["singular_directions"].caption


def test_sampling_is_said_only_where_it_happened(tmp_path, monkeypatch):
    said = "Of each kind with more than"
    assert said not in caption_of("cosine_distributions", *clouds(), None, tmp_path)
    monkeypatch.setattr(figures, "MAX_COSINES", 1000)
    assert said in caption_of("cosine_distributions", *clouds(), None, tmp_path)


def test_the_size_of_the_gaussian_is_said(tmp_path):
    gaussian = np.random.default_rng(2).standard_normal((25, 6))
    caption = caption_of("singular_value_decay", *clouds(), None, tmp_path, gaussian=gaussian)
    assert "Dotted: an isotropic Gaussian sample (n = 25, d = 6) through the same pipeline." in caption


def test_two_rows_of_one_column(tmp_path):
    entries = draw(np.array([[1.0], [2.0]]), np.array([[3.0], [5.0]]), None, tmp_path)
    assert list(entries) == NAMES
    assert "rows have 1 columns" in entries["singular_directions"].caption


def test_only_the_figures_that_are_named_are_drawn(tmp_path):
    names = ("singular_value_decay", "singular_directions")
    assert tuple(draw(*clouds(), None, tmp_path, names=names)) == names
    assert {path.stem for path in tmp_path.glob("*.svg")} == set(names)


def test_a_saved_figure_has_its_caption_and_origin(tmp_path):
    drawings = {"one": Drawing("Title", Figure(), "What it shows.", wide=True)}
    (entry,) = save_drawings(drawings, tmp_path, origin="Seed 3.", prefix="01-", group="a run")
    assert (entry.name, entry.caption, entry.group, entry.wide) == ("01-one", "What it shows. Seed 3.", "a run", True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["01-one.png", "01-one.svg"]


def test_a_figure_is_described_by_its_axes_and_series():
    figure, axes = new_axes()
    axes.plot([1, 2], [0.5, 0.25], label="a")
    axes.plot([1, 2], [1, np.nan], label="b\nc")
    axes.set(xlabel="step", ylabel="$C_0$")
    assert in_words(figure) == "C_0 against step; a, b c"
    assert in_words(Figure()) == ""


def test_many_panels_are_counted():
    figure = Figure()
    for k, axes in enumerate(figure.subplots(2, 3).flat):
        axes.plot([1], [k], "o", label="dots")
        axes.set_title(f"number {k}")
    assert in_words(figure).endswith("number 3: dots. 2 more panels")
