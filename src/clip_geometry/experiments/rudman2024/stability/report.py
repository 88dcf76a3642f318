"""Pictures of the stability study: IsoScore* against ζ, and bias and error of each estimate against n."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from clip_geometry.experiments.mickus2024.classify.report import log_axis
from clip_geometry.experiments.rudman2024.stability.words import STAR, Key, Numbers, labels, which_when
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import fixed
from clip_geometry.report.origin import Row
from clip_geometry.report.style import WIDTH, save_figure, styled

# Tol 2021, muted, as for tasks: told apart with every common colour vision deficiency, the colours of no modality
SERIES = ("#332288", "#117733", "#CC6677", "#AA4499", "#999933")
MARKERS, LINES = "os^vD", ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)), (0, (1, 3)))
LIGHTER, DARKER = np.array([0.78, 0.86, 0.94]), np.array([0.20, 0.13, 0.53])  # few rows, many rows
SHOWN_SIZES = 5  # curves that can be told apart
TRUE: dict[str, Any] = {"color": "#24292F", "linestyle": (0, (4, 2)), "linewidth": 1.0, "zorder": 1}


def numbers_of(rows: Sequence[Row]) -> dict[Key, dict[str, float]]:
    """The rows' values by what they are of; numbers that are undefined are left out."""
    found: dict[Key, dict[str, float]] = {}
    for row in rows:
        if row["value"] is not None:
            key = (row["dataset"], row["n"], row["at"]["estimator"], row["at"].get("zeta"))
            numbers = found.setdefault(key, {"truth": row["truth"]})
            numbers[row["measure"].removeprefix("stability.")] = row["value"]
    return found


def draw_stability(
    rows: Sequence[Row],
    *,
    n: int,
    zetas: Sequence[float],
    origin: str,
    folder: str | Path,
    prefix: str = "",
    group: str = "",
) -> list[FigureEntry]:
    """Draws both figures and saves them as PNG and SVG. n: of which the words speak; zetas:
    of the curves of IsoScore*."""
    numbers = numbers_of(rows)
    if not numbers:
        return []
    shrinkage = (
        "Mean of IsoScore* over the draws against ζ, for several numbers of rows (bands: one standard deviation); "
        "dashed: the true score. At ζ = 0 it is IsoScore, at ζ = 1 that of C_0 alone, whatever the rows are."
    )
    advice = which_when(numbers, n, zetas)
    errors = f"Bias (left; 0 is dashed) and root mean square error (right) against the number of rows. {advice}"
    drawn = {
        "stability_shrinkage": ("IsoScore* against its shrinkage", shrinkage_figure(numbers), shrinkage),
        "stability_errors": ("Which estimate of isotropy to use when", errors_figure(numbers, zetas), errors),
    }
    entries = []
    for name, (title, figure, words) in drawn.items():
        png, svg = save_figure(figure, folder, prefix + name)
        entries.append(FigureEntry(prefix + name, title, f"{words} {origin}", svg, png, group))
    return entries


@styled
def shrinkage_figure(numbers: Numbers) -> Figure:
    """Figure 4 of the paper, a panel for each cloud."""
    clouds, sizes = _clouds(numbers), _some(sorted({n for _, n, _, _ in numbers}), SHOWN_SIZES)
    figure = Figure(figsize=(WIDTH, 0.5 + 1.75 * len(clouds)), layout="constrained")
    panels = figure.subplots(len(clouds), 1, sharex=True, squeeze=False)[:, 0]
    colours = [tuple(LIGHTER + (DARKER - LIGHTER) * share) for share in np.linspace(0, 1, len(sizes))]
    for axes, (cloud, truth) in zip(panels, clouds.items(), strict=True):
        axes.axhline(truth, gid=f"truth:{cloud}", **TRUE)
        for n, colour in zip(sizes, colours, strict=True):
            points = {
                z: each for (c, m, e, z), each in numbers.items() if (c, m, e) == (cloud, n, STAR) and z is not None
            }
            x = np.array(sorted(points))
            mean = np.array([points[zeta]["bias"] + truth for zeta in x])
            spread = np.array([points[zeta]["standard_deviation"] for zeta in x])
            axes.plot(x, mean, color=colour, marker="o", markersize=2.5, label=f"n = {n}", gid=f"star:{cloud}:{n}")
            axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.3, linewidth=0)
        axes.set_title(f"{cloud}, true score {fixed(truth, 3)}", loc="left")
        axes.set_ylabel("IsoScore*")
        axes.set_ylim(bottom=0)
    panels[-1].set_xlabel("ζ (0: the rows alone, 1: $C_0$ alone)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


@styled
def errors_figure(numbers: Numbers, zetas: Sequence[float]) -> Figure:
    """A line of two panels for each cloud: bias and root mean square error of the estimates, on axes they share."""
    clouds, sizes = _clouds(numbers), sorted({n for _, n, _, _ in numbers})
    figure = Figure(figsize=(WIDTH, 0.6 + 1.45 * len(clouds)), layout="constrained")
    panels = figure.subplots(len(clouds), 2, sharex=True, sharey="col", squeeze=False)
    for (left, right), cloud in zip(panels, clouds, strict=True):
        for (label, of), style in zip(labels(zetas).items(), _styles(), strict=False):
            points = [(n, numbers[cloud, n, *of]) for n in sizes if "rmse" in numbers.get((cloud, n, *of), {})]
            for axes, what in ((left, "bias"), (right, "rmse")):
                x, y = [n for n, _ in points], [each[what] for _, each in points]
                axes.plot(x, y, label=label, gid=f"{what}:{cloud}:{label}", **style)
        left.axhline(0, **TRUE)
        left.set_title(cloud, loc="left")
        left.set_ylabel("bias")
        right.set_ylabel("RMSE")
        _sizes_axis(right, sizes)
    log_axis(panels[0, 1].yaxis, np.array([each["rmse"] for each in numbers.values() if "rmse" in each]))
    for axes in panels[-1]:
        axes.set_xlabel("rows n")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def _styles() -> list[dict[str, Any]]:
    drawn = zip(SERIES, MARKERS, LINES, strict=True)
    return [{"color": colour, "marker": marker, "linestyle": line, "markersize": 3} for colour, marker, line in drawn]


def _sizes_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """Logarithmic, with sizes themselves as ticks, as many as there is room for."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(_some(sizes, 3)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _clouds(numbers: Numbers) -> dict[str, float]:
    """Name → true score, in their order."""
    return {cloud: each["truth"] for (cloud, _, _, _), each in numbers.items()}


def _some(sizes: Sequence[int], most: int) -> list[int]:
    """At most so many of them, evenly, with the first and the last."""
    places = np.linspace(0, len(sizes) - 1, min(len(sizes), most)).round().astype(int)
    return [sizes[place] for place in places]
