"""Methods are drawn at their numbers, in one order and one color each, and captions say what they show."""

import numpy as np
import pytest

from clip_geometry_experiments.report.gallery import save_drawings
from clip_geometry_experiments.rudman2024.finetune.config import Method
from clip_geometry_experiments.rudman2024.finetune.figures import (
    activation_figure,
    chosen,
    color,
    cosine_figure,
    draw_finetune,
    draw_tasks,
    label,
    lambda_figure,
    lists,
    marker,
    methods_figure,
    metric,
    over_seeds,
    relation_figure,
    visible,
)

pytestmark = pytest.mark.usefixtures("unrendered")

LAMBDAS = (-5.0, -1.0, 0.5, 3.0)
NONE, COSREG, TOP = Method("none", 0.0), Method("cosreg", 1.0), Method("all_but_the_top", 3.0)


def rows(shift=0.0, seeds=(0, 1)):
    """Numbers that λ moves on a line; each seed adds .01 to IsoScore and takes .02 from accuracy."""
    methods = [("cosreg", {"lambda": 1.0}), ("all_but_the_top", {"components": 3}), ("none", {"lambda": 0.0})]
    methods += [("i_star", {"lambda": value}) for value in LAMBDAS]
    found = []
    for name, at in methods:
        value = at.get("lambda", 0.0) if name == "i_star" else 0.0
        for seed in seeds:
            where = {"method": name, **at, "training.seed": seed}
            tokens, sentences = {**where, "rows": "tokens"}, {**where, "rows": "sentences"}
            performance = {**where, "metric": "matthews"}
            mean = np.zeros(8)
            mean[[2, 5]] = 0.3, -0.4
            found += [
                {"measure": "isoscore", "value": 0.2 + 0.03 * value + 0.01 * seed, "at": tokens},
                {
                    "measure": "finetune.performance",
                    "value": 0.7 + shift - 0.05 * value - 0.02 * seed,
                    "at": performance,
                },
                {"measure": "two_nn", "value": 9 + value, "at": sentences},
                {"measure": "average_cosine", "value": 0.1, "at": tokens, "histogram": [0, 1, 2, 1]},
                {"measure": "finetune.largest_coordinate", "value": 0.8, "at": sentences, "coordinates": list(mean)},
            ]
    pooled = {"method": "none", "lambda": 0.0, "training.seed": "all", "rows": "tokens"}
    return [*found, {"measure": "isoscore", "value": 99.0, "at": pooled}, {"measure": "two_nn", "value": None, "at": {
        **pooled, "training.seed": 7}}]  # fmt: skip


ALL = list(over_seeds(rows(), "two_nn"))


def drawn(figure, gid):
    (found,) = (line for axes in figure.axes for line in axes.lines if line.get_gid() == gid)
    return found


# --- rows


def test_methods_come_in_one_order():
    axis = [Method("i_star", -5.0), Method("i_star", -1.0), NONE, Method("i_star", 0.5), Method("i_star", 3.0)]
    assert [*axis, TOP, COSREG] == ALL
    assert chosen(reversed(ALL)) == [axis[0], NONE, axis[-1], COSREG, TOP]
    assert chosen([NONE]) == [NONE] and chosen([]) == []


def test_values_are_those_of_the_trainings_by_seed():
    found = over_seeds(rows(seeds=(1, 0)), "isoscore", {"rows": "tokens"})
    assert found[NONE] == pytest.approx([0.2, 0.21]) and list(found) == ALL
    assert over_seeds(rows(), "isoscore", {"rows": "sentences"}) == {}
    assert lists(rows(), "histogram")[COSREG].tolist() == [0, 1, 2, 1]
    assert metric(rows()) == "Matthews' correlation" and metric([]) == "performance"


def test_names_are_for_reading():
    assert (label(Method("i_star", -0.5)), label(NONE)) == ("I-STAR, λ = −0.5", "none (λ = 0)")
    assert (label(COSREG), label(TOP)) == ("CosReg, λ = 1", "all-but-the-top, 3")


# --- figures


def test_a_method_has_a_color_and_a_sign_of_its_own():
    found = [*(Method("i_star", value) for value in (-5, -3, -1, 0.5, 1, 3, 5)), NONE, COSREG, TOP]
    assert len({color(way) for way in found}) == 10
    assert [marker(way) for way in (Method("i_star", -1.0), NONE, Method("i_star", 1.0), COSREG, TOP)] == list("vo^sD")


def test_the_relation_has_means_and_deviations():
    values = rows()
    iso, performance = (over_seeds(values, name) for name in ("isoscore", "finetune.performance"))
    iso = over_seeds(values, "isoscore", {"rows": "tokens"})
    figure = relation_figure({"sst2": (iso, performance, "accuracy")})
    line = drawn(figure, "relation:I-STAR, λ = −5")
    assert line.get_xdata() == pytest.approx([0.055]) and line.get_ydata() == pytest.approx([0.94])
    axes = figure.axes[0]
    assert (axes.get_title(), axes.get_ylabel()) == ("sst2", "accuracy")
    horizontal, vertical = axes.containers[0][2]
    assert np.ptp(horizontal.get_segments()[0][:, 0]) == pytest.approx(2 * 0.01 / 2**0.5)
    assert np.ptp(vertical.get_segments()[0][:, 1]) == pytest.approx(2 * 0.02 / 2**0.5)
    assert len(figure.legends[0].get_texts()) == 7


def test_three_tasks_are_three_panels():
    iso = {NONE: np.array([0.1])}
    figure = relation_figure({name: (iso, {NONE: np.array([0.5])}, "accuracy") for name in "abc"})
    assert [axes.get_title() for axes in figure.axes if axes.axison] == ["a", "b", "c"] and len(figure.axes) == 4


def test_a_number_against_lambda_with_plain_training_at_zero():
    figure = lambda_figure(over_seeds(rows(), "two_nn"), "dimension")
    line = drawn(figure, "lambda")
    assert list(line.get_xdata()) == [-5, -1, 0, 0.5, 3] and list(line.get_ydata()) == [4, 8, 9, 9.5, 12]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["−5", "−1", "0", ".5", "3"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["all-but-the-top, 3", "CosReg, λ = 1"]
    assert not lambda_figure({NONE: np.array([1.0])}, "dimension").legends


def test_activations_are_means_with_their_sign_on_one_scale():
    figure = activation_figure(lists(rows(), "coordinates"), [NONE, COSREG, Method("i_star", 99.0)])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["none (λ = 0)", "CosReg, λ = 1"]
    segments = figure.axes[0].collections[0].get_segments()
    assert [segment[1][1] for segment in segments] == [0, 0, 0.3, 0, 0, -0.4, 0, 0]
    assert figure.axes[0].texts[0].get_text() == "5" and figure.axes[0].get_ylim() == figure.axes[1].get_ylim()


def test_a_mean_that_is_gone_is_drawn_and_not_named(tmp_path):
    """All-but-the-top leaves some hundredths of it."""
    shrunk = [
        {**row, "coordinates": [0.04 * each for each in row["coordinates"]]}
        if "coordinates" in row and row["at"]["method"] == "all_but_the_top"
        else row
        for row in rows()
    ]
    means = lists(shrunk, "coordinates")
    assert visible(means, ALL) == [way for way in ALL if way != TOP] and TOP in means
    assert visible({COSREG: np.array([1.0, 0.0]), TOP: np.array([0.0, -0.06])}, [TOP, COSREG]) == [TOP, COSREG]
    heights = {COSREG: np.array([100.0]), NONE: np.array([1.0]), TOP: np.array([0.06])}
    assert visible(heights, [NONE, TOP]) == [NONE, TOP]  # of what is shown
    assert visible({}, []) == []
    figure = activation_figure(means, [NONE, TOP])
    assert [len(axes.texts) for axes in figure.axes] == [1, 0] and len(figure.axes[1].collections) == 1
    _, _, told, _ = (entry.caption for entry in save_drawings(draw_finetune(shrunk), tmp_path, origin="x."))
    assert "all-but-the-top, 3: " not in told
    assert "a twentieth of the largest and not labeled: all-but-the-top, 3. x." in told
    assert "twentieth" not in save_drawings(draw_finetune(rows()), tmp_path, origin="x.")[2].caption


def test_cosines_are_densities_over_the_range_that_has_any():
    figure = cosine_figure(lists(rows(), "histogram"), [NONE, COSREG], {NONE: np.array([0.1, 0.2])})
    first = figure.axes[0].patches[0].get_data()
    assert list(first.values) == [0, 0.5, 1.0, 0.5] and list(first.edges) == [-1, -0.5, 0, 0.5, 1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["none (λ = 0): 0.150", "CosReg, λ = 1"]


def test_methods_have_a_mean_over_the_tasks_that_all_have():
    tasks = {"a": {NONE: np.array([0.5, 0.7]), COSREG: np.array([0.6])}, "b": {NONE: np.array([0.8])}}
    figure = methods_figure(tasks)
    assert drawn(figure, "mean:none (λ = 0)").get_xdata() == pytest.approx([0.7])
    assert "mean:CosReg, λ = 1" not in {line.get_gid() for line in figure.axes[0].lines}
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["CosReg, λ = 1", "none (λ = 0)"]
    alone = methods_figure({"a": tasks["a"]})
    assert [text.get_text() for text in alone.legends[0].get_texts()] == ["a"]


# --- captions and files


def test_figures_are_saved_and_captions_give_the_numbers(tmp_path):
    entries = save_drawings(
        draw_finetune(rows()), tmp_path, origin="cola; a model; seeds 0, 1.", prefix="01-", group="a run"
    )
    names = ("relation", "dimension", "activation", "cosines")
    assert [entry.name for entry in entries] == [f"01-finetune_{name}" for name in names]
    for entry in entries:
        assert entry.caption.endswith("cola; a model; seeds 0, 1.") and entry.group == "a run"
        assert entry.svg_path.exists() and entry.png_path.exists()
    relation, dimension, activation, cosines = (entry.caption for entry in entries)
    x = [0.2 + 0.03 * value + 0.01 * seed for value in (*LAMBDAS, 0) for seed in (0, 1)]
    y = [0.7 - 0.05 * value - 0.02 * seed for value in (*LAMBDAS, 0) for seed in (0, 1)]
    assert f"with performance is −{-np.corrcoef(x, y)[0, 1]:.4f} over 10 trainings" in relation
    assert "All-but-the-top has the IsoScore of plain training" in relation
    assert "I-STAR, λ = −5: 0.0550" in relation and "Matthews' correlation on validation examples" in relation
    assert "4.000 at λ = −5" in dimension and "none (λ = 0): 0.80" in activation
    assert "CosReg, λ = 1: 0.1000" in cosines


def test_what_was_not_recorded_is_not_drawn(tmp_path):
    assert save_drawings(draw_finetune([]), tmp_path, origin="x.") == []
    only = [row for row in rows() if row["measure"] == "two_nn"]
    assert [entry.name for entry in save_drawings(draw_finetune(only), tmp_path, origin="x.")] == ["finetune_dimension"]
    few = [row for row in rows(seeds=(0,)) if row["at"]["method"] == "none"]
    caption = save_drawings(draw_finetune(few), tmp_path, origin="x.")[0].caption
    assert "Pearson" not in caption and "All-but-the-top" not in caption


def test_several_tasks_are_drawn_under_what_differs(tmp_path):
    runs = {"cola, a model": rows(), "rte, a model": rows(shift=0.2)}
    methods, relation = save_drawings(draw_tasks(runs), tmp_path, origin="Up to 2 seeds.", group="all runs together")
    assert "Mean performance over 2 tasks: I-STAR, λ = −5: 1.040" in methods.caption
    assert "All-but-the-top has the IsoScore" in relation.caption
    assert relation.group == "all runs together" and relation.svg_path.exists()
    assert save_drawings(draw_tasks({"cola, a model": []}), tmp_path, origin="") == []
