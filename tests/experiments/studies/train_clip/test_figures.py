"""Curves are drawn at their steps, arms side by side on one scale; captions and sentences give their numbers."""

import numpy as np
import pytest

from clip_geometry_experiments.report.gallery import save_drawings
from clip_geometry_experiments.studies.train_clip.figures import (
    MAIN,
    MORE,
    arms_sentences,
    draw_train_clip,
    training_figure,
    training_sentences,
)

pytestmark = pytest.mark.usefixtures("unrendered")

PANELS = MAIN + MORE
STEPS = np.array([0, 1, 2, 4, 100, 200])


def curves(shift=0.0, **left_out):
    found = {
        line.key: np.linspace(0.2, 0.8, 6) + shift + 0.001 * k for panel in PANELS for k, line in enumerate(panel.lines)
    }
    return {key: values for key, values in found.items() if key[0] not in left_out}


def lines(figure, gid):
    return [line for axes in figure.axes for line in axes.lines if line.get_gid() == gid]


def titled(figure):
    return {title for axes in figure.axes if (title := axes.get_title(loc="left"))}


@pytest.mark.parametrize("panels", [MAIN, MORE])
def test_every_curve_is_drawn_at_its_steps(panels):
    figure = training_figure({"ClipLoss": (curves(), STEPS)}, panels)
    assert titled(figure) == {panel.label for panel in panels}
    for panel in panels:
        for line in panel.lines:
            (drawn,) = lines(figure, ":".join(("ClipLoss", *line.key)))
            assert np.array_equal(drawn.get_xdata(), STEPS)
            assert np.array_equal(drawn.get_ydata(), curves()[line.key])


def test_arms_share_the_scale_of_a_row():
    figure = training_figure({"a": (curves(), STEPS), "b": (curves(0.5), STEPS), "c": (curves(), STEPS[:6])})
    assert len(figure.axes) == 3 * len(MAIN)
    gap = [
        axes for axes in figure.axes for line in axes.lines if (line.get_gid() or "").endswith(":modality_gap:both:all")
    ]
    assert len(gap) == 3 and len({axes.get_ylim() for axes in gap}) == 1
    assert [axes.get_title() for axes in figure.axes[:3]] == ["a", "b", "c"]
    assert sum(axes.get_legend() is not None for axes in figure.axes) == 2  # of the first arm


@pytest.mark.parametrize("panels", [MAIN, MORE])
def test_no_arm_runs_out_of_the_scale_of_another(panels):
    figure = training_figure({"a": (curves(), STEPS), "b": (curves(5.0), STEPS), "c": (curves(-0.6), STEPS)}, panels)
    for axes in figure.axes:
        low, high = axes.get_ylim()
        ends = [value for line in axes.lines if line.get_gid() for value in line.get_ydata()]
        assert all(low <= value <= high for value in ends)


def test_first_and_last_values_stand_above_a_panel():
    figure = training_figure({"a": (curves(), STEPS), "b": (curves(-0.7), STEPS)}, MAIN[3:4])
    told = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert told == [["0.20→0.80", "0.20→0.80"], ["−0.50→0.10", "−0.50→0.10"]]
    unknown = {key: np.where(STEPS > 100, np.nan, values) for key, values in curves().items()}
    figure = training_figure({"a": (unknown, STEPS)}, MAIN[:1])
    assert figure.axes[0].texts[0].get_text() == "0.20→?"


def test_what_was_not_recorded_has_no_panel():
    without = curves(**{"train_clip.temperature": 0, "uniformity": 0})
    figure = training_figure({"class labels": (without, STEPS)}, MORE)
    assert titled(figure) == {panel.label for panel in MORE} - {"temperature", "uniformity"}
    # an arm that lacks a curve leaves its panel empty beside one that has it
    both = training_figure({"a": (curves(), STEPS), "b": (without, STEPS)}, MORE)
    assert {axes.get_ylabel().replace("\n", " ") for axes in both.axes if axes.get_ylabel()} == {
        panel.label for panel in MORE
    }
    assert len(lines(both, "a:uniformity:text:all")) == 1 and not lines(both, "b:uniformity:text:all")


def test_the_caption_tells_first_and_last_values(tmp_path):
    arms = {"ClipLoss": (curves(), STEPS)}
    entry, more = save_drawings(draw_train_clip(arms), tmp_path, origin="scenes; seed 0.", prefix="01-")
    assert entry.wide and more.wide and more.caption.endswith("scenes; seed 0.")
    assert entry.caption.startswith("Gap 0.20 to 0.80, average cosine of images 0.20 to 0.80")
    assert entry.caption.endswith("scenes; seed 0.") and "6 states" in entry.caption
    assert {path.stem for path in tmp_path.iterdir()} == {"01-train_clip", "01-train_clip_more"}
    entry, _ = save_drawings(
        draw_train_clip({"ClipLoss": (curves(), STEPS), "class labels": (curves(0.1), STEPS)}), tmp_path, origin="o"
    )
    assert "ClipLoss: gap 0.20 to 0.80" in entry.caption and "class labels: gap 0.30 to 0.90" in entry.caption


def test_what_is_not_defined_is_left_out_of_the_caption(tmp_path):
    found = curves()
    found["isoscore", "image", "all"] = np.full(6, np.nan)
    entry, _ = save_drawings(draw_train_clip({"a": (found, STEPS)}), tmp_path, origin="o")
    assert "IsoScore" not in entry.caption and "nan" not in entry.caption
    assert save_drawings(draw_train_clip({"a": ({}, np.array([]))}), tmp_path, origin="o") == []


@pytest.mark.slow
def test_seven_arms_are_two_figures(tmp_path):
    entries = save_drawings(draw_train_clip({f"arm {k}": (curves(), STEPS) for k in range(7)}), tmp_path, origin="o")
    assert [entry.name for entry in entries] == [
        "train_clip", "train_clip_more", "train_clip_2", "train_clip_more_2",
    ]  # fmt: skip
    assert "arm 5: gap" in entries[0].caption and "Gap 0.20 to 0.80" in entries[2].caption


@pytest.mark.parametrize("last", [1, 7, 2500])
def test_the_axis_of_steps_ends_at_the_last(last):
    steps = np.array([0, 1, last]) if last > 1 else np.array([0, 1])
    shown = {key: np.linspace(0, 1, len(steps)) for key in curves()}
    figure = training_figure({"a": (shown, steps)})
    assert all(axes.get_xlim() == (0, last) for axes in figure.axes if axes.lines)


# --- sentences

SPACED = [0, 1, 10, 100, 1000]


def row(measure, values, modality="both", **at):
    return {
        "measure": measure,
        "value": values[-1],
        "at": {"modality": modality, **at},
        "trajectory": values,
        "steps": SPACED,
    }


GAP = row("modality_gap", [0.97, 0.95, 0.4, 0.26, 0.24])
CONE = row("average_cosine", [0.45, 0.2, 0.1, 0.12, 0.2], "image")
SEEN = row("zero_shot.top_1", [0.01, 0.02, 0.1, 0.58, 0.99], classes="seen")
HELD_OUT = row("zero_shot.top_1", [0.01, 0.01, 0.1, 0.31, 0.97], classes="held out")
CLUSTERS = row("silhouette", [-0.33, -0.3, -0.2, 0.1, 0.21], "image")
SCORE = row("isoscore[unbiased]", [0.023, 0.02, 0.02, 0.02, 0.025], "image")
ALL = [GAP, CONE, SEEN, HELD_OUT, CLUSTERS, SCORE]


def test_sentences_of_a_training():
    """Half of the change: the cone passes 0.325 at step 1, the gap 0.605 at step 10, the accuracy 0.5 at step 100."""
    gap, accuracy, order, clusters = training_sentences(ALL)
    assert "at step 1 for the cone of images, at step 10 for the modality gap and at step 100 for accuracy" in order
    assert "out of 1000 steps" in order
    assert "falls from 0.97" in gap and "from step 100 on it stays between 0.24 and 0.26." in gap
    assert accuracy.startswith("At step 100, 58% of the images of seen classes and 31% of the images of held-out")
    assert accuracy.endswith("at the end 99% and 97%.")
    assert "(silhouette of images −0.33 to 0.21), and IsoScore hardly changes (0.023 to 0.025)." in clusters


def test_the_order_is_that_of_the_curves():
    late = row("average_cosine", [0.45, 0.45, 0.45, 0.44, 0.2], "image")
    order = training_sentences([GAP, late])[1]
    assert "at step 10 for the modality gap and at step 1000 for the cone of images" in order


def test_a_gap_that_widens_is_not_said_to_fall():
    assert training_sentences([row("modality_gap", [0.2, 0.3, 0.4, 0.5, 0.6])]) == ["The gap goes from 0.20 to 0.60."]


@pytest.mark.parametrize(("last", "word"), [(0.05, "rises"), (0.01, "falls"), (0.028, "hardly changes")])
def test_isotropy_moves_as_it_does(last, word):
    score = row("isoscore[unbiased]", [0.023, 0.02, 0.02, 0.02, last], "image")
    assert f"IsoScore {word} (0.023 to" in training_sentences([CLUSTERS, score])[0]


def test_nothing_is_said_of_states_that_are_missing():
    gap = {**GAP, "trajectory": [0.97, None, 0.4, 0.26, 0.24]}
    assert training_sentences([gap, {"measure": "train_clip.change", "value": 0.1, "at": {"of": "silhouette"}}]) == []
    assert training_sentences([]) == []


def test_several_trainings_are_told_by_where_they_end():
    (gaps,) = arms_sentences([("ClipLoss", [GAP]), ("SigLIP", [row("modality_gap", [0.97, 0.9, 0.8, 0.7, 0.6])])])
    assert gaps == (
        f"The modality gap ends between {GAP['trajectory'][-1]:.3f} (ClipLoss) and 0.600 (SigLIP); before the first "
        "step it is 0.970."
    )
    (same,) = arms_sentences([("a", [GAP]), ("b", [GAP])])
    assert "at the end of both trainings" in same and arms_sentences([("a", [GAP])]) == []
