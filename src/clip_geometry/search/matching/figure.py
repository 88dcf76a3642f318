"""Figure of fitted match models: reliability, risk against coverage, and the scores with their cutoffs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit

from clip_geometry.display.numbers import percent
from clip_geometry.display.style import DASHED, DOTTED, HEIGHT, INK, MATCHING, NEUTRAL, WIDTH, styled
from clip_geometry.search.matching.model import MatchModel

if TYPE_CHECKING:
    from clip_geometry.search.matching.fit import JudgedResults

BINS = 10
TITLES = ("Reliability (bars: 90%)", "Risk and coverage", "Probabilities", "Cosines")


@styled
def draw(models: Mapping[str, MatchModel], results: "Mapping[str, JudgedResults]") -> Figure:
    """Draw one line of four panels for each direction."""
    figure = Figure(figsize=(3 * WIDTH, 0.9 * HEIGHT * len(results)), layout="constrained")
    grid = figure.subplots(len(results), 4, squeeze=False)
    for panels, (direction, judged) in zip(grid, results.items(), strict=True):
        model = models[direction]
        if direction == next(iter(results)):
            for axes, title in zip(panels, TITLES, strict=True):
                axes.set_title(title, fontsize=8)
        _reliability(panels[0], judged)
        panels[0].set_ylabel(f"{model.query} → {model.item}\nshare that is right")
        _risk(panels[1], judged)
        probability, weights = expit(judged.values), judged.weights
        _distributions(panels[2], probability, judged.right, weights, "probability")
        _distributions(panels[3], judged.cosines, judged.right, weights, "cosine of the first result")
        if model.identifies:
            for rate, style in ((0.01, DOTTED), (0.05, DASHED)):
                label = f"{percent(rate)} false accepts"
                for axes, number in ((panels[2], "cutoff"), (panels[3], "cutoff[cosine]")):
                    cutoff = model.numbers[f"{number}@{rate:g}"][0]
                    axes.axvline(cutoff, color=INK, linewidth=0.9, linestyle=style, label=label)
    handles, labels = max((panels[2].get_legend_handles_labels() for panels in grid), key=lambda each: len(each[1]))
    figure.legend(handles, labels, loc="outside upper right", ncols=4, fontsize=7)
    return figure


def _reliability(axes: Axes, judged: "JudgedResults") -> None:
    """Draw the share of right results in bins of equal weight against their mean probability, with 90% intervals."""
    order = np.argsort(judged.values)
    probability, weights = expit(judged.values[order]), judged.weights[order]
    right = judged.right[order].astype(float)
    bins = np.minimum((np.cumsum(weights) / weights.sum() * BINS).astype(int), BINS - 1)
    axes.plot([0, 1], [0, 1], color=NEUTRAL, linewidth=0.9, linestyle=DOTTED)
    for k in np.unique(bins):
        chosen = bins == k
        mean, share = (float(np.average(each[chosen], weights=weights[chosen])) for each in (probability, right))
        size = weights[chosen].sum() ** 2 / np.square(weights[chosen]).sum()
        error = 1.645 * np.sqrt((share * (1 - share) + 1 / size) / size)
        axes.errorbar(mean, share, error, fmt="o", color=INK, markersize=3, linewidth=0.8)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="probability")


def _risk(axes: Axes, judged: "JudgedResults") -> None:
    """Draw the share of wrong results among those that are accepted against their share, for falling cutoffs."""
    wrong_weights = judged.weights * ~judged.right
    scores = (("probability", judged.values, INK, "-"), ("cosine", judged.cosines, NEUTRAL, DASHED))
    for label, score, color, style in scores:
        order = np.argsort(-score)
        accepted = np.cumsum(judged.weights[order])
        axes.plot(
            accepted / accepted[-1],
            np.cumsum(wrong_weights[order]) / accepted,
            color=color,
            linestyle=style,
            label=label,
        )
    axes.set(xlim=(0, 1.02), ylim=(-0.02, 1.02), xlabel="share accepted", ylabel="share wrong among the accepted")
    axes.legend(loc="lower right", fontsize=7)


def _distributions(axes: Axes, scores: np.ndarray, right: np.ndarray, weights: np.ndarray, label: str) -> None:
    """Draw histograms of the scores of right and wrong first results, whose heights add up to 1 together."""
    edges = np.linspace(scores.min(), scores.max() + 1e-9, 31)
    for name, chosen, color in (("right", right, MATCHING), ("wrong", ~right, NEUTRAL)):
        if chosen.any():
            shares = np.histogram(scores[chosen], edges, weights=weights[chosen] / weights.sum())[0]
            axes.stairs(shares, edges, fill=True, alpha=0.5, color=color, label=name)
    axes.set(xlabel=label, ylabel="share of the results")
