"""Panels draw the curves that they are given, on scales that hold them, and figures are saved with their captions."""

import numpy as np
import pytest

from clip_geometry.experiments.kit.figures import Curve, Panel, deviation, panels_figure

STEPS = np.array([0, 1, 10, 40])
RUNS = np.array([[0.1, 0.2, 0.4, 0.5], [0.1, 0.4, 0.6, 0.9]])


def drawn(*panels, **options):
    return panels_figure(panels, size=(4, 3), xlabel="step", **options)


def test_runs_are_drawn_as_mean_and_deviation_and_a_single_curve_without_a_band():
    figure = drawn(Panel("accuracy", [Curve(STEPS, RUNS, "#000000", gid="runs"), Curve(STEPS, RUNS[0], "#FF0000")]))
    (axes,) = figure.axes
    assert axes.lines[0].get_ydata() == pytest.approx(RUNS.mean(0)) and axes.lines[0].get_gid() == "runs"
    assert list(axes.lines[1].get_ydata()) == list(RUNS[0]) and len(axes.collections) == 1
    at_end = sorted(y for x, y in axes.collections[0].get_paths()[0].vertices if x == 40)
    assert (at_end[0], at_end[-1]) == pytest.approx((0.7 - 0.4 / 2**0.5, 0.7 + 0.4 / 2**0.5))
    assert deviation(RUNS) == pytest.approx(RUNS.std(0, ddof=1)) and list(deviation(RUNS[:1])) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("values", "limits", "expected"),
    [
        ([0.2, 0.8], (0, 1.03), (0, 1.03)),
        ([-0.5, 0.8], (0, 1.03), (None, 1.03)),
        ([0.2, 7.0], (0, 1.03), (0, None)),
        ([np.nan, np.nan], (0, 1.03), (0, 1.03)),
    ],
)
def test_curves_beyond_the_limits_are_seen(values, limits, expected):
    (axes,) = drawn(Panel("x", [Curve(STEPS[:2], np.array(values), "#000000")], limits)).axes
    low, high = axes.get_ylim()
    assert (low == expected[0]) if expected[0] is not None else low <= min(values)
    assert (high == expected[1]) if expected[1] is not None else high >= max(values)


def test_the_logarithm_is_of_positive_values_only():
    positive, mixed = (Curve(STEPS, values, "#000000") for values in (RUNS[0], RUNS[0] - 0.3))
    assert [drawn(Panel("x", [each], log=True)).axes[0].get_yscale() for each in (positive, mixed)] == ["log", "linear"]


def test_panels_lie_in_rows_that_may_share_a_scale():
    panels = [Panel(f"{k}", [Curve(STEPS, RUNS[0] * 10**k, "#000000", f"curve {k % 2}")]) for k in range(3)]
    figure = drawn(*panels, columns=2, share=True, log_steps=True, legend={"ncols": 2})
    first, second, third, rest = figure.axes
    assert first.get_ylim() == second.get_ylim() != third.get_ylim() and not rest.axison
    assert [axes.get_xlabel() for axes in (first, second, third)] == ["", "step", "step"]
    assert third.get_xlim() == (0, 40) and third.get_xscale() == "symlog"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["curve 0", "curve 1"]


def test_ends_and_levels_are_drawn():
    panel = Panel("x", [Curve(STEPS, RUNS[0], "#000000")], ends=2, levels={0.3: {"color": "#FF0000"}}, title="gap")
    (axes,) = drawn(panel).axes
    assert [text.get_text() for text in axes.texts] == ["0.10→0.50"] and axes.get_title(loc="left") == "gap"
    assert [line.get_ydata()[0] for line in axes.lines] == [0.1, 0.3]
