"""Methods are drawn at their numbers, in one order and one color each, and captions say what they show."""

import numpy as np
import pytest

from clip_geometry_experiments.rudman2024.finetune.figures import over_seeds, relation_figure
from clip_geometry_experiments.rudman2024.finetune.model import Method

pytestmark = pytest.mark.usefixtures("unrendered")

LAMBDAS = (-5.0, -1.0, 0.5, 3.0)
NONE, COSREG, TOP = Method("none", 0.0), Method("cosreg", 1.0), Method("all_but_the_top", 3.0)


def rows(shift=0.0, seeds=(0, 1)):
    """Numbers that λ moves on a line; each seed adds .01 to IsoScore and takes .02 from accuracy."""
    methods = [("cosreg", {"lambda": 1.0}), ("all_but_the_top", {"components": 3}), ("none", {"lambda": 0.0})]
    methods += [("i_star", {"lambda": value}) for value in LAMBDAS]
    found = []
    for name, at in methods:
        value = at.get("lambda", 0.0) if name == "i_star" else 0.0
        for seed in seeds:
            where = {"method": name, **at, "training.seed": seed}
            tokens, sentences = {**where, "rows": "tokens"}, {**where, "rows": "sentences"}
            performance = {**where, "metric": "matthews"}
            mean = np.zeros(8)
            mean[[2, 5]] = 0.3, -0.4
            found += [
                {"measure": "isoscore", "value": 0.2 + 0.03 * value + 0.01 * seed, "at": tokens},
                {
                    "measure": "finetune.performance",
                    "value": 0.7 + shift - 0.05 * value - 0.02 * seed,
                    "at": performance,
                },
                {"measure": "two_nn", "value": 9 + value, "at": sentences},
                {"measure": "average_cosine", "value": 0.1, "at": tokens, "histogram": [0, 1, 2, 1]},
                {"measure": "finetune.largest_coordinate", "value": 0.8, "at": sentences, "coordinates": list(mean)},
            ]
    pooled = {"method": "none", "lambda": 0.0, "training.seed": "all", "rows": "tokens"}
    return [*found, {"measure": "isoscore", "value": 99.0, "at": pooled}, {"measure": "two_nn", "value": None, "at": {
        **pooled, "training.seed": 7}}]  # fmt: skip


def drawn(figure, gid):
    (found,) = (line for axes in figure.axes for line in axes.lines if line.get_gid() == gid)
    return found


# --- figures


def test_the_relation_has_means_and_deviations():
    values = rows()
    iso, performance = (over_seeds(values, name) for name in ("isoscore", "finetune.performance"))
    iso = over_seeds(values, "isoscore", {"rows": "tokens"})
    figure = relation_figure({"sst2": (iso, performance, "accuracy")})
    line = drawn(figure, "relation:I-STAR, λ = −5")
    assert line.get_xdata() == pytest.approx([0.055]) and line.get_ydata() == pytest.approx([0.94])
    axes = figure.axes[0]
    assert (axes.get_title(), axes.get_ylabel()) == ("sst2", "accuracy")
    horizontal, vertical = axes.containers[0][2]
    assert np.ptp(horizontal.get_segments()[0][:, 0]) == pytest.approx(2 * 0.01 / 2**0.5)
    assert np.ptp(vertical.get_segments()[0][:, 1]) == pytest.approx(2 * 0.02 / 2**0.5)
    assert len(figure.legends[0].get_texts()) == 7
