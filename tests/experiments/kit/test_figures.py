"""Panels draw the curves that they are given, on scales that hold them, and figures are saved with their captions."""

import numpy as np
import pytest

from clip_geometry_experiments.kit.figures import Panel, PanelCurve, deviation, map_sentences, panels_figure

STEPS = np.array([0, 1, 10, 40])
RUNS = np.array([[0.1, 0.2, 0.4, 0.5], [0.1, 0.4, 0.6, 0.9]])


def drawn(*panels, **options):
    return panels_figure(panels, size=(4, 3), xlabel="step", **options)


def test_runs_are_drawn_as_mean_and_deviation_and_a_single_curve_without_a_band():
    figure = drawn(
        Panel("accuracy", [PanelCurve(STEPS, RUNS, "#000000", gid="runs"), PanelCurve(STEPS, RUNS[0], "#FF0000")])
    )
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
    (axes,) = drawn(Panel("x", [PanelCurve(STEPS[:2], np.array(values), "#000000")], limits)).axes
    low, high = axes.get_ylim()
    assert (low == expected[0]) if expected[0] is not None else low <= min(values)
    assert (high == expected[1]) if expected[1] is not None else high >= max(values)


def test_the_logarithm_is_of_positive_values_only():
    positive, mixed = (PanelCurve(STEPS, values, "#000000") for values in (RUNS[0], RUNS[0] - 0.3))
    assert [drawn(Panel("x", [each], log=True)).axes[0].get_yscale() for each in (positive, mixed)] == ["log", "linear"]


def test_panels_lie_in_rows_that_may_share_a_scale():
    panels = [Panel(f"{k}", [PanelCurve(STEPS, RUNS[0] * 10**k, "#000000", f"curve {k % 2}")]) for k in range(3)]
    figure = drawn(*panels, columns=2, share=True, log_steps=True, legend={"ncols": 2})
    first, second, third, rest = figure.axes
    assert first.get_ylim() == second.get_ylim() != third.get_ylim() and not rest.axison
    assert [axes.get_xlabel() for axes in (first, second, third)] == ["", "step", "step"]
    assert third.get_xlim() == (0, 40) and third.get_xscale() == "symlog"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["curve 0", "curve 1"]


def test_ends_and_levels_are_drawn():
    panel = Panel("x", [PanelCurve(STEPS, RUNS[0], "#000000")], ends=2, levels={0.3: {"color": "#FF0000"}}, title="gap")
    (axes,) = drawn(panel).axes
    assert [text.get_text() for text in axes.texts] == ["0.10→0.50"] and axes.get_title(loc="left") == "gap"
    assert [line.get_ydata()[0] for line in axes.lines] == [0.1, 0.3]


def scored(name, value, error=0.01, **at):
    return {"measure": "score", "value": value, "standard_error": error, "null_value": 0.1, "at": {"row": name, **at}}


def test_maps_beyond_the_error_of_the_first_are_told_with_their_ties():
    rows = [scored("as it is", 0.5), scored("up", 0.8), scored("up too", 0.79), scored("down", 0.2)]
    (told,) = map_sentences(rows, {"score": "accuracy"}, key=None)
    assert told == (
        "The accuracy is 0.500 ± 0.010 with “as it is” (null value 0.1000); it is highest after “up” (0.800 ± 0.010) "
        "and “up too” (0.790 ± 0.010), a tie, and lowest after “down” (0.200 ± 0.010)."
    )


def test_maps_within_the_error_change_nothing():
    (told,) = map_sentences([scored("a", 0.5), scored("b", 0.51), scored("c", 0.48)], {"score": "accuracy"}, key=None)
    assert told.endswith("; none of the 2 other maps changes it by more than two standard errors (0.480 to 0.510).")
    (told,) = map_sentences([scored("a", 0.5), scored("b", 0.6)], {"score": "accuracy"}, key=None, label="RN50")
    assert told.startswith("RN50: the accuracy") and told.endswith("and no map lowers it beyond the error.")
    (alone,) = map_sentences([scored("a", 0.5)], {"score": "accuracy"}, key=None)
    assert alone == "The accuracy is 0.500 ± 0.010 with “a” (null value 0.1000)."


def test_an_error_that_is_not_known_neither_ranks_maps_nor_makes_a_tie():
    rows = [scored("as it is", 0.5), scored("up", 0.8, error=None)]
    (told,) = map_sentences(rows, {"score": "accuracy"}, key=None)
    assert told.endswith("; after the other map it is 0.800, with errors that are not all known.")
    (told,) = map_sentences([*rows, scored("down", 0.2)], {"score": "accuracy"}, key=None)
    assert told.endswith("; it is lowest after “down” (0.200 ± 0.010); some errors are not known.")


def test_each_series_has_a_sentence_and_means_over_draws_come_before_single_ones():
    splits = [scored(name, 0.5, split=split) for name in "ab" for split in ("train", "test")]
    told = map_sentences(splits, {"score": "loss"}, key="split")
    assert [each[:23] for each in told] == ["The loss on test pairs ", "The loss on train pairs"]
    (mean,) = map_sentences([scored("a", 0.9, draw=0), scored("a", 0.5)], {"score": "accuracy"}, key=None)
    assert "0.500" in mean and "0.900" not in mean
    assert map_sentences([], {"score": "accuracy"}, key=None) == []
