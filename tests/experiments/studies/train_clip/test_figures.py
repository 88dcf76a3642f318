"""Curves are drawn at their steps, arms side by side on one scale; captions and sentences give their numbers."""

import numpy as np
import pytest

from clip_geometry_experiments.studies.train_clip.figures import PANELS, training_figure, training_sentences

pytestmark = pytest.mark.usefixtures("unrendered")

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


def test_every_curve_is_drawn_at_its_steps():
    figure = training_figure({"ClipLoss": (curves(), STEPS)})
    assert titled(figure) == {panel.label for panel in PANELS}
    for panel in PANELS:
        for line in panel.lines:
            (drawn,) = lines(figure, ":".join(("ClipLoss", *line.key)))
            assert np.array_equal(drawn.get_xdata(), STEPS)
            assert np.array_equal(drawn.get_ydata(), curves()[line.key])


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
    assert "falls from 0.97" in gap and "from step 100 on, it stays between 0.24 and 0.26." in gap
    assert accuracy.startswith("At step 100, 58% of the images of seen classes and 31% of the images of held-out")
    assert accuracy.endswith("at the end 99% and 97%.")
    assert "the silhouette of the images goes from −0.33 to 0.21. IsoScore hardly changes (0.023 to 0.025)." in clusters
