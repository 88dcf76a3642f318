"""The figures of fresh models draw the numbers of their rows, and captions say what these are."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from clip_geometry.display.style import IMAGE, TEXT
from clip_geometry_experiments.report.gallery import save_drawings
from clip_geometry_experiments.tyshchuk2023.initialization.figures import (
    FROM_START,
    STEP,
    LayerCurve,
    Spread,
    TowerPanel,
    bias_planes,
    cosine_dots,
    draw_initialization,
    layer_curves,
    panels_of,
    table_of,
    tell,
)

pytestmark = pytest.mark.usefixtures("unrendered")

OPERATIONS = ["attention normalisation", "attention", "attention residual", "mlp normalisation", "mlp", "mlp residual"]


def row(model="a/fresh", modality="text", seed=0, zero=False, mode=None, value=0.5, layer=None, operation=None, **more):
    at = {"modality": modality} | ({} if layer is None else {"layer": layer, "operation": operation})
    options = {"seed": seed, "zero_bias": zero} | ({} if mode is None else {"batch_norm": mode})
    about = {"dataset": "a set", "data_options": {"size": 9}, "n": 9, "batch_size": 9}
    origin = {"measure": "average_cosine", "model": model, "model_options": options, "cell": f"{model}{options}{at}"}
    return {**about, **origin, "value": value, "at": at, "predicted": None, "predicted_from_start": None, **more}


def tower(seed=0, zero=False, shift=0.0):
    """Rows of a text tower of one block."""
    about = {"seed": seed, "zero": zero}
    rows = [row(layer=0, operation="embedding", value=0.9, **about)]
    for k, name in enumerate(OPERATIONS):
        theory = {"predicted": 0.41 + shift, "predicted_from_start": 0.43} if name != "attention" else {}
        rows.append(row(layer=1, operation=name, value=0.4 + k / 100 + shift, **theory, **about))
    end = {"predicted": 0.5, "predicted_from_start": 0.52}
    rows.append(row(layer=2, operation="projection", value=0.5 + shift, **end, **about))
    return [row(value=0.5 + shift, **about), *rows]


def artists(figure, gid):
    return [each for axes in figure.axes for each in (*axes.lines, *axes.collections) if each.get_gid() == gid]


def line(figure, gid):
    (found,) = artists(figure, gid)
    return list(found.get_xdata()), pytest.approx(list(found.get_ydata()))


# --- rows into curves


def test_a_curve_is_the_mean_over_seeds_at_the_place_of_its_operation():
    (panel,) = panels_of(table_of([*tower(0), *tower(1, shift=0.1), *tower(0, zero=True, shift=0.2)]))
    stream, mlp = panel.curves["stream"], panel.curves["MLP branch"]
    assert list(stream.x) == [0, 0.5, 1, 2]  # attention half way, the MLP at the end of its block
    assert stream.mean == pytest.approx([0.9, 0.47, 0.5, 0.55])
    assert stream.spread == pytest.approx([0, *[0.1 / np.sqrt(2)] * 3])
    assert list(mlp.x) == [1] and mlp.mean == pytest.approx([0.49]) and mlp.predicted == pytest.approx([0.46])
    assert np.isnan(stream.from_start[0]) and stream.from_start[1:] == pytest.approx([0.43, 0.43, 0.52])
    assert list(panel.curves["attention branch"].x) == [0.5] and "before the ReLU" not in panel.curves
    assert panel.without is not None and panel.without.mean == pytest.approx([0.9, 0.62, 0.65, 0.7])


def test_zero_biases_alone_are_the_curves_themselves():
    (panel,) = panels_of(table_of(tower(zero=True)))
    assert panel.without is None and panel.curves["stream"].mean[0] == 0.9


def test_of_a_resnet_the_relus_that_change_something_are_drawn():
    """Blocks 1 and 3 have a shortcut, block 2 is the identity; zero branches have no cosine."""
    about = {"modality": "image", "mode": "batch"}
    rows = [
        row(layer=0, operation=f"stem {what} 1", value=v, **about)
        for what, v in (("normalisation", 0), ("activation", 0.8))
    ]
    for layer in (1, 2, 3):
        rows.append(row(layer=layer, operation="normalisation", value=None, **about))
        rows += [row(layer=layer, operation="shortcut", value=0.0, **about)] if layer != 2 else []
        rows.append(row(layer=layer, operation="residual", value=0.01 * layer, **about))
        rows.append(row(layer=layer, operation="activation", value=0.7, **about))
    (panel,) = panels_of(table_of(rows))
    assert panel.title == "image, batch statistics"
    assert list(panel.curves["before the ReLU"].x) == pytest.approx([-0.8, 1, 3])
    assert list(panel.curves["stream"].x) == pytest.approx([-0.8, 1, 2, 3])
    assert panel.curves["before the ReLU"].mean == pytest.approx([0, 0.01, 0.03])


def test_a_spread_of_one_seed_has_no_deviation():
    assert str(Spread([0.5])) == "0.5000" and Spread([0.5]).deviation == 0
    assert str(Spread([0.5, 0.7])) == "0.6000 ± 0.1414"


# --- figures


def curve(*mean, predicted=np.nan):
    x, y = np.arange(len(mean), dtype=float), np.array(mean, dtype=float)
    return LayerCurve(x, y, np.full(len(x), 0.05), np.full(len(x), predicted), np.full(len(x), predicted))


def test_lines_are_measured_and_markers_predicted():
    curves = {"stream": curve(0.9, 0.5, predicted=0.6), "MLP branch": curve(0.3, 0.2, predicted=0.25)}
    figure = layer_curves(
        [TowerPanel("image", "image", curves, curve(0.8, 0.4)), TowerPanel("text", "text", {"stream": curve(1, 1)})]
    )
    assert line(figure, "stream:image") == ([0, 1], [0.9, 0.5])
    assert line(figure, f"{FROM_START}:image") == ([0, 1], [0.6, 0.6])
    assert line(figure, f"{STEP}:image") == ([0, 1], [0.25, 0.25])
    assert line(figure, "without:image") == ([0, 1], [0.8, 0.4])
    assert not artists(figure, "without:text")
    for name, color in (("image", IMAGE), ("text", TEXT)):
        (found,) = artists(figure, f"stream:{name}")
        assert to_hex(found.get_color()).upper() == color
    (band,) = (each for each in figure.axes[0].collections if each.get_paths()[0].vertices[:, 1].max() > 0.9)
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(0.95)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["stream", "MLP branch", "stream, zero biases", "MLP branch, predicted", "stream, predicted"]


def test_without_predictions_the_legend_names_none():
    figure = layer_curves([TowerPanel("image", "image", {"stream": curve(1, 0.5)})])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["stream"]


def test_planes_keep_lengths_and_share_their_scale():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 2)) * 0.1 + [0.8, 0]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    figure = bias_planes([("image", "image", {"as initialized": rows, "zero biases": rows}),
                          ("text", "text", {"as initialized": rows})])  # fmt: skip
    first, _, third, fourth = figure.axes
    assert np.linalg.norm(np.asarray(first.collections[0].get_offsets()), axis=1) == pytest.approx(np.ones(20))
    assert first.get_xlim() == third.get_xlim() and first.get_ylim() == third.get_ylim()
    assert not fourth.get_visible() and first.get_title(loc="left") == "as initialized"
    (mean,) = (each for each in first.lines if each.get_gid() == "mean")
    assert mean.get_xdata()[0] == pytest.approx(np.linalg.norm(rows.mean(0)), rel=1e-2)


def test_axes_of_planes_contain_every_point_and_the_origin():
    """Unit rows reach from −1 to 1 along the second direction, and further than any fixed range in a wide cone."""
    angles = np.linspace(-1.4, 1.4, 40)
    wide = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    narrow = np.stack([np.cos(angles / 9), np.sin(angles / 9)], axis=1)
    figure = bias_planes([("image", "image", {"as initialized": wide, "zero biases": narrow}),
                          ("text", "text", {"as initialized": narrow, "zero biases": wide})])  # fmt: skip
    figure.draw_without_rendering()
    for axes in figure.axes:
        points = np.vstack([np.asarray(axes.collections[0].get_offsets()), [[0, 0]]])
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert left < points[:, 0].min() and points[:, 0].max() < right
        assert bottom < points[:, 1].min() and points[:, 1].max() < top
        box = axes.get_window_extent()
        assert box.width / box.height == pytest.approx((right - left) / (top - bottom), rel=1e-3)


def test_dots_have_their_mean_and_deviation():
    figure = cosine_dots([("a", "image", {"as initialized": Spread([0.5, 0.7]), "zero biases": Spread([0.4])})])
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["0.6000 ± 0.1414", "0.4000"]
    segment = axes.containers[0][2][0].get_segments()[0]
    assert segment[:, 0] == pytest.approx([0.6 - 0.1414, 0.6 + 0.1414], abs=1e-4)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["as initialized", "zero biases"]


# --- the entries


def draw(rows, folder, embeddings=lambda row: None, **options):
    entries = save_drawings(draw_initialization(rows, embeddings), folder, **options)
    return {entry.name: entry for entry in entries}


def test_a_few_models_are_drawn_layer_by_layer(tmp_path):
    vectors = np.random.default_rng(1).normal(size=(9, 5)) + 3
    rows = [*tower(0), *tower(1, shift=0.1), *tower(0, zero=True)]
    asked = []
    found = draw(rows, tmp_path, lambda row: asked.append(row) or vectors, prefix="01-", group="a run")
    assert list(found) == ["01-cosine_of_fresh_models", "01-layers_1", "01-biases_1"]
    for entry in found.values():
        assert entry.group == "a run" and entry.svg_path.exists() and entry.png_path.exists()
        assert "a/fresh, fresh; n = 9 texts of a set (size 9); seed" in entry.caption
    cosines, layers, biases = (entry.caption for entry in found.values())
    assert "seeds 0, 1; pipeline normalize" in cosines and "batch" not in cosines
    # the MLP measures .44 (.54 of the other seed) where .41 (.51) is predicted; the embeddings .5 and .6, not .52
    assert "deviation is 0.030 for the MLPs and 0.080 for the embeddings predicted from the input." in layers
    assert "seed 0; pipeline normalize" in biases and "All lie on one side of the origin" in biases
    assert {row["model_options"]["seed"] for row in asked} == {0} and len(asked) == 2


# captions of Tyshchuk et al. 2023: "Figure 5. CLIP-RN101 image embeddings distribution …", "Figure 6. CLIP-ViT-B/32
# image embeddings distribution …", "Figure 7. CLIP text embeddings distribution …"
@pytest.mark.parametrize(
    ("model", "figures"),
    [
        ("open_clip:RN101/fresh", " (images: figure 5 of the paper)"),
        ("open_clip:ViT-B-32/fresh", " (images and texts: figures 6 and 7 of the paper)"),
        ("open_clip:RN50/fresh", ""),
    ],
)
def test_a_title_names_the_figure_of_the_paper(model, figures, tmp_path):
    found = draw([row(model, "image"), row(model)], tmp_path, lambda row: np.eye(9, 5) + 1)
    assert found["biases_1"].title == f"With and without biases: {model.split(':')[1].split('/')[0]}{figures}"


def test_the_page_of_figures_names_them_as_the_paper_does():
    page = (Path(__file__).parents[4] / "docs/howto/figures.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.splitlines() if "`tyshchuk2023/initialization`" in line and line.startswith("|"))
    assert line.split("|")[1].strip() == "figures 5 and 6, images of RN101 and ViT-B/32; figure 7, texts"
    assert "figure 5, the cone of an untrained RN101" in page and "open_clip:RN101/fresh" in page


def test_rows_on_both_sides_of_the_origin_are_not_said_to_be_on_one(tmp_path):
    vectors = np.random.default_rng(1).normal(size=(30, 5))
    assert "one side" not in draw([row()], tmp_path, lambda row: vectors)["biases_1"].caption


def test_what_is_not_there_is_not_drawn(tmp_path):
    assert list(draw([row()], tmp_path)) == ["cosine_of_fresh_models"]  # neither layers nor embeddings


def test_batch_statistics_tell_their_batch(tmp_path):
    rows = [row(modality="image", mode=mode, value=value) for mode, value in (("eval", 0.99), ("batch", 0.6))]
    caption = draw(rows, tmp_path)["cosine_of_fresh_models"].caption
    assert "one batch of 9 images. In eval mode a fresh batch norm is the identity." in caption


def test_the_summary_has_the_cones_with_and_without_biases_and_theory():
    rows = [each for seed in (0, 1) for zero in (False, True) for each in tower(seed, zero, 0.02 * seed)]
    rows[0]["null_value"] = -0.002
    cones, zero, theory = tell(rows)
    assert cones == (
        "Untrained models map their inputs into a cone: two random texts have an average cosine of 0.5100 ± 0.0141; "
        "isotropic rows have 0.002 at most (± over 2 seeds)."
    )
    assert zero.startswith("With all biases zero two random texts have an average cosine of 0.5100 ± 0.0141")
    assert theory == "The kernel recursion of wide random networks predicts the cosine after every MLP to within 0.030."


def test_the_summary_of_several_models_has_the_narrowest_and_the_widest_cone():
    rows = [
        row("open_clip:RN50/fresh", "image", mode=mode, value=value) for mode, value in (("eval", 1.0), ("batch", 0.4))
    ]
    (told,) = tell([*rows, row("open_clip:ViT/fresh", "image", value=0.7)])
    assert "0.4000 (RN50, batch statistics) to 1.0000 (RN50, eval mode)" in told
    assert tell([]) == []
