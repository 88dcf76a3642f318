"""Curves and relations are drawn as recorded, with their spread, and captions say what they show."""

import numpy as np
import pytest

from clip_geometry_experiments.mickus2024.classify.figures import curves_figure

pytestmark = pytest.mark.usefixtures("unrendered")

UPDATES = np.array([0, 5, 10, 12])
SILHOUETTE = np.array([[0.0, 0.1, 0.3, 0.4], [0.0, 0.2, 0.4, 0.5]])
ISOSCORE = np.array([[0.3, 0.2, 0.05, 0.01], [0.3, 0.1, 0.04, 0.02]])
CURVES = {
    ("silhouette", "trained", "input"): SILHOUETTE,
    ("silhouette[cosine]", "trained", "input"): SILHOUETTE + 0.1,
    ("isoscore", "trained", "input"): ISOSCORE,
    ("classify.loss", "trained", "output"): 1 - SILHOUETTE,
    ("classify.accuracy", "trained", "output"): 0.5 + SILHOUETTE,
}
HIDDEN = {("silhouette", "trained", "hidden"): SILHOUETTE - 0.2}


def drawn(figure, gid):
    (found,) = (line for axes in figure.axes for line in axes.lines if line.get_gid() == gid)
    return found


def test_curves_are_means_over_seeds_with_a_band_of_one_deviation():
    figure = curves_figure({**CURVES, **HIDDEN}, UPDATES)
    above, below = figure.axes
    assert (above.get_ylabel(), below.get_ylabel(), below.get_xlabel()) == ("silhouette", "IsoScore", "update")
    assert below.get_yscale() == "log" and above.get_yscale() == "linear"
    line = drawn(figure, "silhouette:trained:input")
    assert list(line.get_xdata()) == list(UPDATES) and line.get_ydata() == pytest.approx(SILHOUETTE.mean(0))
    band = below.collections[0].get_paths()[0].vertices
    at_end = sorted(y for x, y in band if x == 12)
    mean, deviation = ISOSCORE[:, -1].mean(), ISOSCORE[:, -1].std(ddof=1)
    assert (at_end[0], at_end[-1]) == pytest.approx((mean - deviation, mean + deviation))
    texts = [text.get_text() for text in above.get_legend().get_texts()]
    assert texts == ["Euclidean", "cosine", "Euclidean, hidden layer"]
    looks = {(line.get_color(), str(line.get_linestyle())) for line in above.lines}
    assert len(looks) == 3 and below.get_legend() is None
