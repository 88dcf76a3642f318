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
