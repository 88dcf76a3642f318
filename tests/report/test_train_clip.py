"""Curves are drawn at their steps, arms side by side on one scale, and the caption says what they show."""

import numpy as np
import pytest

from clip_geometry.report.train_clip import PANELS, draw_train_clip, training_figure

STEPS = np.array([0, 1, 2, 4, 100, 200])


def curves(shift=0.0, **left_out):
    found = {
        line.key: np.linspace(0.2, 0.8, 6) + shift + 0.001 * k for panel in PANELS for k, line in enumerate(panel.lines)
    }
    return {key: values for key, values in found.items() if key[0] not in left_out}


def lines(figure, gid):
    return [line for axes in figure.axes for line in axes.lines if line.get_gid() == gid]


def test_every_curve_is_drawn_at_its_steps():
    figure = training_figure({"ClipLoss": (curves(), STEPS)})
    for panel in PANELS:
        for line in panel.lines:
            (drawn,) = lines(figure, ":".join(("ClipLoss", *line.key)))
            assert np.array_equal(drawn.get_xdata(), STEPS)
            assert np.array_equal(drawn.get_ydata(), curves()[line.key])


def test_arms_share_the_scale_of_a_row():
    figure = training_figure({"a": (curves(), STEPS), "b": (curves(0.5), STEPS), "c": (curves(), STEPS[:6])})
    assert len(figure.axes) == 3 * len(PANELS)
    gap = [
        axes for axes in figure.axes for line in axes.lines if (line.get_gid() or "").endswith(":modality_gap:both:all")
    ]
    assert len(gap) == 3 and len({axes.get_ylim() for axes in gap}) == 1
    assert [axes.get_title() for axes in figure.axes[:3]] == ["a", "b", "c"]
    assert sum(axes.get_legend() is not None for axes in figure.axes) == 3  # of the first arm


def test_no_arm_runs_out_of_the_scale_of_another():
    figure = training_figure({"a": (curves(), STEPS), "b": (curves(5.0), STEPS), "c": (curves(-0.1), STEPS)})
    for axes in figure.axes:
        low, high = axes.get_ylim()
        ends = [value for line in axes.lines for value in (min(line.get_ydata()), max(line.get_ydata()))]
        held = high in (1.03,)  # shares and cosines, of which there are none above 1
        assert all(low <= value <= high or held for value in ends)


def test_what_was_not_recorded_has_no_panel():
    without = curves(**{"train_clip.temperature": 0, "uniformity": 0})
    figure = training_figure({"class labels": (without, STEPS)})
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert "temperature" not in labels and "uniformity" not in labels and "modality gap" in labels
    # an arm that lacks a curve leaves its panel empty beside one that has it
    both = training_figure({"a": (curves(), STEPS), "b": (without, STEPS)})
    assert len(lines(both, "a:uniformity:text:all")) == 1 and not lines(both, "b:uniformity:text:all")


def test_the_caption_tells_first_and_last_values(tmp_path):
    (entry,) = draw_train_clip({"ClipLoss": (curves(), STEPS)}, folder=tmp_path, origin="scenes; seed 0.", prefix="01-")
    assert entry.caption.startswith("Gap 0.20 to 0.80, average cosine of images 0.20 to 0.80")
    assert entry.caption.endswith("scenes; seed 0.") and "6 states" in entry.caption
    assert sorted(path.name for path in tmp_path.iterdir()) == ["01-train_clip.png", "01-train_clip.svg"]
    (entry,) = draw_train_clip(
        {"ClipLoss": (curves(), STEPS), "class labels": (curves(0.1), STEPS)}, folder=tmp_path, origin="o"
    )
    assert "ClipLoss: gap 0.20 to 0.80" in entry.caption and "class labels: gap 0.30 to 0.90" in entry.caption


def test_what_is_not_defined_is_left_out_of_the_caption(tmp_path):
    found = curves()
    found["isoscore", "image", "all"] = np.full(6, np.nan)
    (entry,) = draw_train_clip({"a": (found, STEPS)}, folder=tmp_path, origin="o")
    assert "IsoScore" not in entry.caption and "nan" not in entry.caption
    assert draw_train_clip({"a": ({}, np.array([]))}, folder=tmp_path, origin="o") == []


@pytest.mark.parametrize("last", [1, 7, 2500])
def test_the_axis_of_steps_ends_at_the_last(last):
    steps = np.array([0, 1, last]) if last > 1 else np.array([0, 1])
    shown = {key: np.linspace(0, 1, len(steps)) for key in curves()}
    figure = training_figure({"a": (shown, steps)})
    assert all(axes.get_xlim() == (0, last) for axes in figure.axes if axes.lines)
