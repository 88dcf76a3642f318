"""The figure shows the rows' trajectories, and sentences say what the rows say."""

import pytest

from clip_geometry_experiments.report.gallery import save_drawings
from clip_geometry_experiments.studies.distillation.figures import distillation_figure, draw_distillation, sentences

pytestmark = pytest.mark.usefixtures("unrendered")

STEPS = [0, 1, 4, 9]


def curve(measure, language, values, **more):
    at = {"tower": "student", "step": 9, "language": language, **more}
    row = {"measure": measure, "value": values[-1], "n": 30, "trajectory": values, "steps": STEPS, "at": at}
    return row | ({"null_value": 0.0125} if more else {})


def accuracy(tower, language, value, kind="seen"):
    at = {"tower": tower, "language": language, "classes": kind, "pictures": "tested"}
    row = {"measure": "zero_shot.top_1", "value": value, "standard_error": 0.01, "n": 400, "null_value": 0.0125}
    return {**row, "at": at}


ROWS = [
    curve("zero_shot.top_1", "en", [0.01, 0.3, 0.6, 0.96], classes="seen"),
    curve("zero_shot.top_1", "ru", [0.02, 0.1, 0.5, 0.91], classes="seen"),
    curve("distillation.cosine", "en", [-0.1, 0.2, 0.7, 0.9]),
    curve("distillation.cosine", "ru", [0.0, None, 0.6, 0.8]),
    accuracy("teacher", "en", 0.97),
    accuracy("student", "en", 0.95),
    accuracy("student", "ru", 0.92),
    {
        "measure": "language_distance.ratio", "value": 0.21, "standard_error": 0.02, "n": 30,
        "at": {"source": "en", "language": "ru"},
    },
]  # fmt: skip


def test_lines_are_the_trajectories():
    figure = distillation_figure([row for row in ROWS if "trajectory" in row], {"seen": 0.97})
    lines = {line.get_gid(): line for axes in figure.axes for line in axes.lines if line.get_gid()}
    assert len(lines) == 4
    russian = lines["zero_shot.top_1:seen:ru"]
    assert list(russian.get_xdata()) == STEPS and list(russian.get_ydata()) == [0.02, 0.1, 0.5, 0.91]
    assert russian.get_linestyle() != lines["zero_shot.top_1:seen:en"].get_linestyle()
    straight = [line.get_ydata()[0] for line in figure.axes[0].lines if not line.get_gid()]
    assert sorted(straight) == [0.0125, 0.97]  # chance and teacher
    assert [axes.get_ylabel() for axes in figure.axes] == ["zero-shot, seen", "cosine to the teacher"]
    assert figure.axes[1].get_ylim()[0] < -0.1  # a cosine below 0 is seen


def test_the_caption_tells_what_it_came_to(tmp_path):
    (entry,) = save_drawings(draw_distillation(ROWS), tmp_path, origin="scenes; seed 0.", prefix="01-")
    assert entry.caption.startswith(
        "Zero-shot accuracy of the saved student: en 0.950, ru 0.920, teacher 0.970 (seen cl"
    )
    assert (
        "(dashed) and the chance level (dotted)" in entry.caption
        and "4 states" in entry.caption
        and entry.caption.endswith("seed 0.")
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"01-distillation.{kind}" for kind in ("png", "svg")]
    assert save_drawings(draw_distillation(ROWS[4:]), tmp_path, origin="") == []


def test_sentences_say_the_rows():
    found, distance = sentences(ROWS)
    assert "images of seen classes" in found and ": en 0.950 ± 0.010, ru 0.920 ± 0.010; the teacher" in found
    assert "reaches 0.9700" in found and "chance level is 0.0125." in found
    assert "to its en translation" in distance and distance.endswith(": ru 0.210 ± 0.020.")
    assert sentences(ROWS[:4]) == []


@pytest.mark.parametrize("kept", [ROWS[2:4], ROWS[:1]])
def test_panels_without_rows_are_left_out(kept, tmp_path):
    (entry,) = save_drawings(draw_distillation(kept), tmp_path, origin="o.")
    assert entry.caption.startswith("4 states, measured on held-out")
