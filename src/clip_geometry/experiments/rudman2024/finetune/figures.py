"""Pictures of fine-tuning with a penalty on isotropy: figures 1 to 3 and 5 to 7 of Rudman & Eickhoff 2024."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from clip_geometry.experiments.rudman2024.finetune.report_rows import Way, visible
from clip_geometry.report.numbers import fixed
from clip_geometry.report.style import HEIGHT, NEUTRAL, WIDTH, styled

# ends of the λ axis and the other methods; Okabe & Ito 2008
NEGATIVE, ZERO, POSITIVE = (0.00, 0.28, 0.55), (0.14, 0.16, 0.18), (0.75, 0.25, 0.00)
OTHERS = {"cosreg": "#009E73", "all_but_the_top": "#AA4499"}
MARKERS = {"cosreg": "s", "all_but_the_top": "D"}
WIDEST = 5.0  # λ at which a colour is full

Values = Mapping[Way, NDArray[np.float64]]


def colour(way: Way) -> str:
    """Blue for negative λ, orange for positive, paler near 0; black for plain training."""
    if not way.regularised:
        return OTHERS[way.method]
    if way.value == 0:
        return to_hex(ZERO)
    share = 0.45 + 0.55 * min(abs(way.value) / WIDEST, 1)
    end = NEGATIVE if way.value < 0 else POSITIVE
    red, green, blue = (1 - share * (1 - part) for part in end)
    return to_hex((red, green, blue))


def marker(way: Way) -> str:
    return MARKERS.get(way.method, {-1.0: "v", 0.0: "o", 1.0: "^"}[float(np.sign(way.value))])


@styled
def relation_figure(tasks: Mapping[str, tuple[Values, Values, str]]) -> Figure:
    """Figure 5: IsoScore against performance, a panel for each task: (IsoScore, performance, its name).

    Dots: trainings; signs: means over seeds, bars: one standard deviation.
    """
    columns = min(len(tasks), 2)
    lines = -(-len(tasks) // columns)
    figure = Figure(figsize=(WIDTH if columns == 1 else 1.6 * WIDTH, 0.5 + 2.4 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    found: dict[Way, Any] = {}
    for axes, (name, (isoscore, performance, metric)) in zip(panels, tasks.items(), strict=False):
        for way in isoscore:
            if way in performance and len(isoscore[way]) == len(performance[way]):
                found[way] = _cross(axes, way, isoscore[way], performance[way])
        axes.set(xlabel="IsoScore of the tokens of all layers", ylabel=metric, title=name)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    for axes in panels[len(tasks) :]:
        axes.set_axis_off()
    figure.legend(list(found.values()), [way.words for way in found], loc="outside upper left", ncols=2 * columns)
    return figure


def _cross(axes: Axes, way: Way, x: NDArray[np.float64], y: NDArray[np.float64]) -> Any:
    """The mean with its deviations, and the trainings behind it; the handle of its legend."""
    axes.plot(x, y, ".", color=colour(way), alpha=0.45, markersize=4)
    bars: Any = {"xerr": spread(x), "yerr": spread(y)} if len(x) > 1 else {}
    drawn = axes.errorbar(
        [x.mean()], [y.mean()], **bars, fmt=marker(way), color=colour(way), markersize=5.5, elinewidth=0.9
    )
    drawn.lines[0].set_gid(f"relation:{way.words}")
    return drawn


def spread(values: NDArray[np.float64]) -> float:
    """Standard deviation over seeds."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


@styled
def lambda_figure(values: Values, label: str) -> Figure:
    """Figure 7: a number against λ, mean and deviation over seeds; horizontal lines: the other methods."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    axis = sorted((way for way in values if way.regularised), key=lambda way: way.value)
    x, mean, error = (
        [way.value for way in axis],
        [float(values[way].mean()) for way in axis],
        [spread(values[way]) for way in axis],
    )
    axes.plot(x, mean, color=NEUTRAL, linewidth=1, zorder=1, gid="lambda")
    for place, way in enumerate(axis):
        axes.errorbar(
            [x[place]], [mean[place]], yerr=[error[place]], fmt=marker(way), color=colour(way), markersize=5.5
        )
    for way in values:
        if not way.regularised:
            axes.axhline(float(values[way].mean()), color=colour(way), linestyle=(0, (5, 1.5)), label=way.words)
    axes.set(xlabel="λ of I-STAR (0: none)", ylabel=label)
    axes.set_xticks(x, [f"{each:g}".replace("-", "−").replace("0.", ".") for each in x], fontsize=7)
    if any(not way.regularised for way in values):
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


@styled
def activation_figure(means: Values, shown: Sequence[Way]) -> Figure:
    """Figure 1: the mean of every coordinate of the sentence embeddings, a panel for each method, one scale; the
    largest is named where there is anything to see."""
    shown = [way for way in shown if way in means]
    named = visible(means, shown)
    figure = Figure(figsize=(WIDTH, 0.45 + 0.85 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, way in zip(panels, shown, strict=True):
        mean = means[way]
        axes.vlines(np.arange(len(mean)), 0, mean, color=colour(way), linewidth=0.6)
        if way in named:
            top = int(np.abs(mean).argmax())
            place = (top, mean[top])
            axes.annotate(f"{top}", place, xytext=(3, 0), textcoords="offset points", fontsize=6.5, va="center")
        axes.margins(y=0.2)
        axes.set_title(way.words, loc="left", fontsize=7.5, pad=2)
    panels[-1].set_xlabel("coordinate")
    figure.supylabel("mean over sentences", fontsize=8)
    return figure


@styled
def cosine_figure(histograms: Values, shown: Sequence[Way], means: Values) -> Figure:
    """Figures 2 and 3: the distribution of the cosines of random pairs of tokens of the last layer, a line for each
    method; histograms: counts in equal bins from −1 to 1."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    for way in (way for way in shown if way in histograms):
        counts = histograms[way]
        edges = np.linspace(-1, 1, len(counts) + 1)
        density = counts / counts.sum() / np.diff(edges)
        label = f"{way.words}: {fixed(means[way].mean(), 3)}" if way in means else way.words
        axes.stairs(density, edges, color=colour(way), label=label, linewidth=1.3, baseline=None)
    filled = np.flatnonzero(sum(histograms[way] for way in shown if way in histograms))
    width = 2 / len(next(iter(histograms.values())))
    axes.set_xlim(max(-1, -1 + width * (filled[0] - 2)), min(1, -1 + width * (filled[-1] + 3)))
    axes.set(xlabel="cosine of two different tokens, last layer", ylabel="density")
    axes.set_ylim(bottom=0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=1, title="average cosine")
    return figure


@styled
def methods_figure(tasks: Mapping[str, Values]) -> Figure:
    """Figure 6: performance of each method, a small sign for each task and a large one for the mean of all tasks, which
    is taken only of methods that all tasks have."""
    found = list(dict.fromkeys(way for values in tasks.values() for way in values))
    figure = Figure(figsize=(WIDTH, 0.9 + 0.26 * len(found)), layout="constrained")
    axes = figure.add_subplot()
    signs = dict(zip(tasks, "o^svDP*X<>hdp", strict=False))
    for height, way in enumerate(reversed(found)):
        scores = {name: float(values[way].mean()) for name, values in tasks.items() if way in values}
        for name, score in scores.items():
            axes.plot(score, height, signs.get(name, "."), color=colour(way), alpha=0.5, markersize=4)
        if len(scores) == len(tasks) > 1:
            average = float(np.mean(list(scores.values())))
            axes.plot(
                average, height, "|", color=colour(way), markersize=13, markeredgewidth=2.2, gid=f"mean:{way.words}"
            )
    for name in tasks:
        axes.plot([], [], signs.get(name, "."), color=NEUTRAL, linestyle="none", label=name)
    if len(tasks) > 1:
        axes.plot([], [], "|", color=NEUTRAL, markersize=10, markeredgewidth=2.2, linestyle="none", label="mean")
    axes.set_yticks(range(len(found)), [way.words for way in reversed(found)])
    axes.set(xlabel="performance on validation examples")
    axes.set_ylim(-0.6, len(found) - 0.4)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return figure
