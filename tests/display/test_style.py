"""Dots with errors, and lines by name."""

import pytest
from matplotlib.figure import Figure

from clip_geometry.display.style import error_dots, name_lines


@pytest.mark.parametrize("upright", [False, True])
def test_dots_have_their_values_and_errors_where_they_have_some(upright):
    axes = Figure().add_subplot()
    rows = [{"value": 0.25, "standard_error": 0.125}, {"value": 0.5, "standard_error": None}, {"value": 0.75}]
    error_dots(axes, iter(rows), [0, 1, 4], upright=upright, marker="^", color="k")
    (container,) = axes.containers
    values, places = container.lines[0].get_data()[:: -1 if upright else 1]
    assert list(values) == [0.25, 0.5, 0.75] and list(places) == [0, 1, 4] and container.lines[0].get_marker() == "^"
    (bars,) = container.lines[2]
    ends = [segment[:, int(upright)].tolist() for segment in bars.get_segments()]
    assert ends == [[0.125, 0.375], [0.5, 0.5], [0.75, 0.75]]


def test_named_lines_begin_on_top():
    axes = Figure().add_subplot()
    name_lines(axes, ["first", "second"], fontsize=6)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["first", "second"]
    assert axes.get_ylim() == (1.6, -0.6)
