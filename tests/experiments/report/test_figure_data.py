"""The table and the words of a figure hold what was drawn."""

import csv
import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from clip_geometry.display.couples import heat_maps
from clip_geometry.display.style import error_dots, name_lines, new_axes
from clip_geometry_experiments.report.figure_data import Table, as_csv, in_words


def points(figure):
    return list(csv.DictReader(io.StringIO(as_csv(figure))))


def test_lines_have_their_labels_and_the_labels_of_the_axes():
    figure, axes = new_axes()
    axes.plot([1, 2], [0.5, 0.25], label="a")
    axes.plot([1, 2], [1, np.nan], label="_", gid="mean:image")
    axes.set(xlabel="step", ylabel="$C_0$")
    assert points(figure) == [
        {"series": "a", "step": "1", "$C_0$": "0.5"},
        {"series": "a", "step": "2", "$C_0$": "0.25"},
        {"series": "mean image", "step": "1", "$C_0$": "1"},
        {"series": "mean image", "step": "2", "$C_0$": ""},
    ]
    assert in_words(figure) == "C_0 against step; a, mean image"


def test_errors_and_names_at_ticks():
    figure, axes = new_axes()
    rows = [{"value": 0.25, "standard_error": 0.125}, {"value": 0.5}]
    error_dots(axes, rows, [0.1, 0.9], color="k", label="accuracy")
    name_lines(axes, ["first", "second"])
    assert points(figure) == [
        {"series": "accuracy", "x": "0.25", "y": "first", "±": "0.125"},
        {"series": "accuracy", "x": "0.5", "y": "second", "±": "0"},
    ]


def test_error_bars_without_values_are_no_points():
    figure, axes = new_axes()
    axes.errorbar([], [], yerr=[])
    axes.plot([], [], label="in the legend only")
    assert points(figure) == [] and in_words(figure) == ""


def test_a_band_around_a_curve_is_its_error():
    figure, axes = new_axes()
    x, mean = np.arange(3), np.array([1.0, 2.0, 3.0])
    axes.plot(x, mean, label="mean")
    axes.fill_between(x, mean - 0.5, mean + 0.5, alpha=0.2)
    axes.plot(x, mean + 9, label="other")
    assert [row["±"] for row in points(figure)] == ["0.5"] * 3 + [""] * 3


def test_lines_across_the_panel_have_one_number():
    figure, axes = new_axes()
    axes.axhline(0.1, gid="least")
    axes.axvline(3, label="last")
    assert points(figure) == [{"series": "least", "x": "", "y": "0.1"}, {"series": "last", "x": "3", "y": ""}]


def test_scatters_bars_steps_and_points_in_space():
    figure = Figure()
    flat, space = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2, projection="3d")
    flat.scatter([1, 2], [3, 4], label="dots")
    flat.bar([5, 6], [7, 8], label="bars")
    flat.barh([2], [9], label="lying")
    flat.stairs([10], [0, 4], label="steps")
    flat.set_title("flat")
    space.scatter([1], [2], [3], label="cloud")
    found = points(figure)
    of = {name: [(row["x"], row["y"]) for row in found if row["series"] == name] for name in ("dots", "bars", "lying")}
    assert of == {"dots": [("1", "3"), ("2", "4")], "bars": [("5", "7"), ("6", "8")], "lying": [("9", "2")]}
    assert [(row["x"], row["y"]) for row in found if row["series"] == "steps"] == [("2", "10")]
    assert found[-1] == {"panel": "panel 2", "series": "cloud", "x": "1", "y": "2", "z": "3"}
    assert found[0]["panel"] == "flat"


def test_lines_without_a_label_have_that_of_the_legend():
    figure = Figure()
    for axes in figure.subplots(1, 2):
        axes.plot([0, 1], color="#123456", linestyle="--")
    figure.legend(handles=[Line2D([], [], color="#123456", linestyle="--", label="texts")])
    assert {row["series"] for row in points(figure)} == {"texts"}


def test_a_heat_map_has_its_names_and_values():
    rows = [
        {"measure": "cka", "value": value, "at": {"modality": "+".join(pair)}}
        for pair, value in ((("audio", "image"), 0.5), (("audio", "text"), 0.25), (("image", "text"), 0.75))
    ]
    found = points(heat_maps(rows))
    assert {(row["x"], row["y"], row["z"]) for row in found} >= {("image", "audio", "0.5"), ("text", "image", "0.75")}


def test_a_long_table_is_thinned_evenly_and_keeps_both_ends():
    figure, axes = new_axes()
    axes.plot(np.arange(1001), np.linspace(0, 1, 1001), label="1")
    table = Table.read(as_csv(figure), most=11)
    assert table.left_out == 990 and table.columns == ("series", "x", "y")
    assert table.rows[0] == ("1", "0", "0") and table.rows[5] == ("1", "500", "0.5000")
    assert table.rows[-1] == ("1", "1000", "1")


def test_many_panels_are_counted():
    figure = Figure()
    for k, axes in enumerate(figure.subplots(2, 3).flat):
        axes.plot([1], [k], "o", label="dots")
        axes.set_title(f"number {k}")
    assert in_words(figure).endswith("number 3: dots. 2 more panels")


@pytest.mark.parametrize("name", ["same", "same (2)"])
def test_panels_of_one_title_are_told_apart(name):
    figure = Figure()
    for axes in figure.subplots(1, 2):
        axes.plot([1], [2], "o")
        axes.set_title("same")
    assert name in {row["panel"] for row in points(figure)}
